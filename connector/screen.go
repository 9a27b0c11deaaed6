package main

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/postern-dev/postern/connector/agent"
	"github.com/postern-dev/postern/connector/text"
	"github.com/postern-dev/postern/connector/tty"
	"github.com/postern-dev/postern/connector/version"
)

const (
	screenRefresh  = time.Second            // interval at which times are updated
	screenPause    = 100 * time.Millisecond // shortest time between two updates
	screenRequests = 5                      // recent requests shown
)

// screen shows a connector's status in a block of lines at the end of a terminal. Written text
// appears above the block.
type screen struct {
	w    io.Writer
	size func() (width, height int)
	now  func() time.Time

	mu     sync.Mutex
	status func() agent.Status // nil: nothing is shown
	block  string              // on the terminal now
	widths []int               // of its lines
}

// newScreen returns a screen on the terminal w, or nil if w does not support one.
func newScreen(w io.Writer, getenv func(string) string) *screen {
	file, ok := w.(*os.File)
	if !ok || !tty.Is(w) || getenv("TERM") == "dumb" || !enableSequences(file) {
		return nil
	}
	size := func() (int, int) {
		width, height := tty.Size(w)
		return cmp.Or(width, 80), cmp.Or(height, 24)
	}
	return &screen{w: w, size: size, now: time.Now}
}

// Write writes whole lines above the block.
func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	block, widths := s.draw()
	if err := s.replace(string(p), block, widths); err != nil {
		return 0, err
	}
	return len(p), nil
}

func (s *screen) begin(status func() agent.Status) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status = status
}

// update redraws the block if it has changed.
func (s *screen) update() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if block, widths := s.draw(); block != s.block {
		_ = s.replace("", block, widths)
	}
}

// end replaces the block with a last line.
func (s *screen) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := "Stopped; " + requestsText(s.status()) + "\n"
	s.status = nil
	_ = s.replace(last, "", nil)
}

// replace replaces the block by text and a new block below it. A terminal that became narrower
// has wrapped the lines of the old block.
func (s *screen) replace(text, block string, widths []int) error {
	width, _ := s.size()
	rows := 0
	for _, w := range s.widths {
		rows += max((w+width-1)/width, 1)
	}
	if rows > 0 {
		text = fmt.Sprintf("\x1b[%dA\r\x1b[J", rows) + text
	}
	s.block, s.widths = block, widths
	_, err := io.WriteString(s.w, text+block)
	return err
}

// draw returns the block, with the widths of its lines.
func (s *screen) draw() (block string, widths []int) {
	if s.status == nil {
		return "", nil
	}
	width, height := s.size()
	for _, l := range s.lines(height) {
		// The last column stays free: some terminals wrap when it is full.
		text, columns := s.render(l, width-1)
		block += text + "\n"
		widths = append(widths, columns)
	}
	return block, widths
}

// lines returns as many lines of the block as fit.
func (s *screen) lines(height int) []line {
	head := []line{nil, {{plain, "Postern connector " + version.Number()}, {faint, "  Ctrl-C stops it"}}}
	status := s.status()
	lines := append(head, reportLines(status, s.now(), screenRequests)...)
	if spare := len(lines) - (height - 1); spare > 0 {
		lines = append(head, reportLines(status, s.now(), max(screenRequests-spare, 0))...)
	}
	return lines[:min(len(lines), max(height-1, 1))]
}

// render returns a line cut to maxColumns, and its width.
func (s *screen) render(l line, maxColumns int) (string, int) {
	var b strings.Builder
	columns := 0
	for _, p := range l {
		shown := text.Line(p.text)
		left := maxColumns - columns
		if left <= 0 {
			break
		}
		if utf8.RuneCountInString(shown) > left {
			shown = string([]rune(shown)[:left-1]) + "…"
		}
		columns += utf8.RuneCountInString(shown)
		b.WriteString(tty.Paint(s.w, p.tone, shown))
	}
	return b.String(), columns
}
