package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"golang.org/x/term"

	"github.com/postern-dev/postern/connector/agent"
	"github.com/postern-dev/postern/connector/text"
	"github.com/postern-dev/postern/connector/version"
)

const (
	// screenRefresh is how often times are brought up to date.
	screenRefresh = time.Second
	// screenPause is the least time between two pictures.
	screenPause = 100 * time.Millisecond
	// screenRequests is how many of the last requests are shown.
	screenRequests = 5
)

// screen shows what a connector is doing in a block of lines at the end of a
// terminal, and what is written to it above that.
type screen struct {
	w     io.Writer
	size  func() (width, height int)
	color bool
	now   func() time.Time

	mu     sync.Mutex
	status func() agent.Status // nil: nothing is shown
	drawn  []int               // widths of the block's lines as they stand
	last   string              // the block as it stands
}

// newScreen returns the screen on a terminal, or nil if w is none that can show
// one.
func newScreen(w io.Writer, getenv func(string) string) *screen {
	file, ok := w.(*os.File)
	if !ok || !isTerminal(w) || getenv("TERM") == "dumb" || !enableSequences(file) {
		return nil
	}
	size := func() (int, int) {
		width, height, err := term.GetSize(int(file.Fd()))
		if err != nil || width <= 0 || height <= 0 {
			return 80, 24
		}
		return width, height
	}
	return &screen{w: w, size: size, color: getenv("NO_COLOR") == "", now: time.Now}
}

// Write writes whole lines above the block.
func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var b bytes.Buffer
	s.erase(&b)
	b.Write(p)
	s.draw(&b)
	if _, err := s.w.Write(b.Bytes()); err != nil {
		return 0, err
	}
	return len(p), nil
}

// show keeps the block up to date until ctx ends.
func (s *screen) show(ctx context.Context, a *agent.Agent) {
	s.mu.Lock()
	s.status = a.Status
	s.mu.Unlock()
	tick := time.NewTicker(screenRefresh)
	defer tick.Stop()
	for {
		changed := a.Changed()
		s.update()
		select {
		case <-ctx.Done():
			s.end()
			return
		case <-changed:
		case <-tick.C:
		}
		select {
		case <-ctx.Done():
			s.end()
			return
		case <-time.After(screenPause):
		}
	}
}

// update redraws the block, if it has changed.
func (s *screen) update() {
	s.mu.Lock()
	defer s.mu.Unlock()
	var b bytes.Buffer
	before, widths := s.last, s.drawn
	s.erase(&b)
	s.draw(&b)
	if s.last == before && len(widths) == len(s.drawn) {
		return
	}
	_, _ = s.w.Write(b.Bytes())
}

// end replaces the block by a last word.
func (s *screen) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	var b bytes.Buffer
	s.erase(&b)
	status := s.status()
	s.status = nil
	fmt.Fprintf(&b, "Stopped; %s\n", requestsText(status))
	_, _ = s.w.Write(b.Bytes())
}

// erase takes the block away. Lines that are wider than the terminal, since it
// was made narrower, have been wrapped by it.
func (s *screen) erase(b *bytes.Buffer) {
	width, _ := s.size()
	rows := 0
	for _, w := range s.drawn {
		rows += max((w+width-1)/width, 1)
	}
	if rows > 0 {
		fmt.Fprintf(b, "\x1b[%dA\r\x1b[J", rows)
	}
	s.drawn = nil
}

// draw adds the block.
func (s *screen) draw(b *bytes.Buffer) {
	if s.status == nil {
		return
	}
	start := b.Len()
	width, height := s.size()
	for _, l := range s.lines(height) {
		// The last column stays free: some terminals wrap already when it is full.
		text, columns := s.render(l, width-1)
		b.WriteString(text)
		b.WriteByte('\n')
		s.drawn = append(s.drawn, columns)
	}
	s.last = string(b.Bytes()[start:])
}

// lines are the block's, as many as there is room for.
func (s *screen) lines(height int) []line {
	head := []line{nil, {{plain, "Postern connector " + version.Number()}, {faint, "  Ctrl-C stops it"}}}
	status := s.status()
	lines := append(head, reportLines(status, s.now(), screenRequests)...)
	if spare := len(lines) - (height - 1); spare > 0 {
		lines = append(head, reportLines(status, s.now(), max(screenRequests-spare, 0))...)
	}
	return lines[:min(len(lines), max(height-1, 1))]
}

// render returns a line in at most so many columns, and how many it takes.
func (s *screen) render(l line, most int) (string, int) {
	var b strings.Builder
	columns := 0
	for _, p := range l {
		shown := text.Line(p.text)
		left := most - columns
		if left <= 0 {
			break
		}
		if utf8.RuneCountInString(shown) > left {
			shown = string([]rune(shown)[:left-1]) + "…"
		}
		columns += utf8.RuneCountInString(shown)
		if code := p.tone.sequence(); s.color && code != "" {
			shown = code + shown + "\x1b[0m"
		}
		b.WriteString(shown)
	}
	return b.String(), columns
}

// sequence begins the tone's colour on a terminal. Colours are the terminal's
// own, so that they can be read on any background.
func (t tone) sequence() string {
	switch t {
	case faint:
		return "\x1b[2m"
	case good:
		return "\x1b[32m"
	case warning:
		return "\x1b[33m"
	case bad:
		return "\x1b[31m"
	default:
		return ""
	}
}
