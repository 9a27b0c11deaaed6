package dialect

import (
	"strconv"
	"strings"
	"testing"
)

// The list is bounded, and tells how many parts it omits.
func TestDroppedPartsAreBounded(t *testing.T) {
	var d droppedParts
	if d.String() != "" {
		t.Errorf("an empty list is %q", d.String())
	}
	for range 500 {
		d.add("tools.2", "web_search")
	}
	text := d.String()
	n := strings.Count(text, "web_search")
	if len(text) > maxDropped || n < 30 || !strings.HasSuffix(text, "tools.2 (web_search), and "+
		strconv.Itoa(500-n)+" more") {
		t.Errorf("%d parts in %d bytes: %s", n, len(text), text)
	}
}
