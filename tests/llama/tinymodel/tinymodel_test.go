package tinymodel_test

import (
	"bytes"
	"testing"

	"github.com/postern-dev/postern/tests/llama/tinymodel"
)

// Tests compare what the model says byte for byte, so the file must not depend
// on map order or time.
func TestWriteIsDeterministic(t *testing.T) {
	var a, b bytes.Buffer
	for _, w := range []*bytes.Buffer{&a, &b} {
		if err := tinymodel.Write(w, tinymodel.Options{}); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(a.Bytes(), b.Bytes()) {
		t.Error("two runs gave different files")
	}
	if !bytes.HasPrefix(a.Bytes(), []byte("GGUF\x03\x00\x00\x00")) {
		t.Errorf("file starts with %q", a.Bytes()[:8])
	}
	if a.Len()%32 != 0 || a.Len() < 1<<20 {
		t.Errorf("file has %d bytes", a.Len())
	}
}
