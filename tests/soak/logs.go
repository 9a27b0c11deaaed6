package main

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"slices"
	"strings"
	"time"
)

// Bounds of what a finding shows of logs.
const (
	logBytes    = 1 << 20 // of a log's end that are looked through
	maxLogLines = 12      // of each log
)

// logLines returns what the gateway logged about connectors, or as a warning or
// error, in a time and shortly before, and what these connectors logged, if
// they are processes. No log holds a secret or what a request says.
func (s *system) logLines(from, until time.Time, connectors []int) []string {
	from, until = from.Add(-2*time.Second), until.Add(time.Second)
	var names []string
	var lines []string
	for _, i := range connectors {
		names = append(names, s.connectors[i].ID)
	}
	about := func(line []byte) bool {
		return bytes.Contains(line, []byte(`"level":"error"`)) || bytes.Contains(line, []byte(`"level":"warn"`)) ||
			slices.ContainsFunc(names, func(name string) bool { return bytes.Contains(line, []byte(name)) })
	}
	lines = append(lines, within(s.gateway.Process.LogPath, from, until, about)...)
	for _, i := range connectors {
		if p := s.connectors[i].Process; p != nil {
			all := func([]byte) bool { return true }
			lines = append(lines, within(p.LogPath, from, until, all)...)
		}
	}
	return lines
}

// within returns the last lines of a log of JSON objects that were written in a
// time.
func within(path string, from, until time.Time, choose func([]byte) bool) []string {
	f, err := os.Open(path)
	if err != nil {
		return []string{err.Error()}
	}
	defer f.Close()
	if size, err := f.Seek(0, io.SeekEnd); err == nil {
		_, _ = f.Seek(max(0, size-logBytes), io.SeekStart) // it can be sought: Seek above did
	}
	b, _ := io.ReadAll(f) // as much as there is
	var lines []string
	for line := range bytes.Lines(b) {
		var when struct {
			TS   float64   `json:"ts"`   // Caddy's
			Time time.Time `json:"time"` // a connector's
		}
		if json.Unmarshal(line, &when) != nil {
			continue
		}
		at := when.Time
		if at.IsZero() {
			at = time.UnixMicro(int64(when.TS * 1e6))
		}
		if !at.Before(from) && !at.After(until) && choose(line) {
			lines = append(lines, strings.TrimSpace(string(line[:min(len(line), 400)])))
		}
	}
	return lines[max(0, len(lines)-maxLogLines):]
}
