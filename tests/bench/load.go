//go:build linux

package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/postern-dev/postern/tests/command"
	"github.com/postern-dev/postern/tests/upstream/play"
)

// The model's public name, which clients use, and its name at the upstream behind Postern. The upstream
// answers with the name in the request. With every system, clients must get the public name.
const (
	publicModel = "bench"
	localModel  = "bench-local-8b"
)

// A target is the address that takes a system's requests.
type target struct {
	Addr string // host:port
	Key  string // bearer token; ignored by systems without keys
}

// A task is a request and the correct answer.
type task struct{ request, want []byte }

// ask returns the task for a script, with a prompt before it that is escaped for JSON.
func (t target) ask(s play.Script, prompt string) task {
	return task{t.request(s, "", prompt), s.AppendCompletion(nil, publicModel)}
}

// streamed returns the task for a script that is streamed.
func (t target) streamed(s play.Script) task {
	return task{
		t.request(s, `"stream":true,"stream_options":{"include_usage":true},`, ""), s.AppendStream(nil, publicModel),
	}
}

func (t target) request(s play.Script, more, prompt string) []byte {
	body := fmt.Sprintf(`{"model":"%s",%s"temperature":0.7,"max_tokens":512,"messages":[{"role":"system",`+
		`"content":"You are a helpful assistant. Answer in one short paragraph."},{"role":"user","content":"%s%s"}]}`,
		publicModel, more, prompt, s)
	return fmt.Appendf(nil, "POST /v1/chat/completions HTTP/1.1\r\nHost: %s\r\nUser-Agent: bench\r\nAccept: "+
		"application/json\r\n"+
		"Authorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", t.Addr, t.Key,
		len(body), body)
}

// smallAnswer is a whole answer of about 1 KB.
var smallAnswer = play.Script{Tokens: 1, Bulk: 720}

// A client sends requests on one connection, one after the other. It uses less CPU time than the client of net/http,
// which would distort the measurement on few cores.
type client struct {
	net.Conn
	r        *bufio.Reader
	body     bytes.Buffer
	lastRead int64 // time of the last read, by the monotonic clock
}

func (c *client) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.lastRead = play.Monotonic()
	return n, err
}

// dial connects to the target. The connection times out after limit.
func (t target) dial(limit time.Duration) (*client, error) {
	conn, err := net.DialTimeout("tcp", t.Addr, 5*time.Second)
	if err != nil {
		return nil, err
	}
	_ = conn.SetDeadline(time.Now().Add(limit)) // an open socket accepts deadlines
	c := &client{Conn: conn}
	c.r = bufio.NewReaderSize(c, 16<<10)
	return c, nil
}

// do sends the task's request and compares the answer byte for byte.
func (c *client) do(t task) error {
	answer, err := c.start(t.request)
	if err != nil {
		return err
	}
	c.body.Reset()
	if _, err := c.body.ReadFrom(answer); err != nil {
		return fmt.Errorf("the answer is incomplete: %w", err)
	}
	got, i := c.body.Bytes(), 0
	if bytes.Equal(got, t.want) {
		return nil
	}
	for i < min(len(got), len(t.want)) && got[i] == t.want[i] {
		i++
	}
	return fmt.Errorf("the answer has %d bytes instead of %d; from byte %d it is %.100q instead of %.100q",
		len(got), len(t.want), i, got[i:], t.want[i:])
}

// start sends a request and returns the body of the answer. It returns an error for any status but 200.
func (c *client) start(request []byte) (io.Reader, error) {
	if _, err := c.Write(request); err != nil {
		return nil, fmt.Errorf("sending a request: %w", err)
	}
	answer, err := http.ReadResponse(c.r, nil) //nolint:bodyclose // the connection is closed, or the body read to its end
	if err != nil {
		return nil, fmt.Errorf("waiting for an answer: %w", err)
	}
	if answer.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(answer.Body) // as much as was received
		return nil, fmt.Errorf("the answer has status %d: %.300s", answer.StatusCode, text)
	}
	return answer.Body, nil
}

// stamps sends a request for a stream of stamped tokens. It returns the age of each event in milliseconds, at
// the arrival of its last byte, or an error if the stream is incomplete.
func (c *client) stamps(request []byte, tokens int) ([]float64, error) {
	answer, err := c.start(request)
	if err != nil {
		return nil, err
	}
	delays, ended := make([]float64, 0, tokens), false
	for lines := bufio.NewReader(answer); err == nil; {
		var line []byte
		line, err = lines.ReadSlice('\n')
		if sent, ok := play.StampOf(line); ok {
			delays = append(delays, milliseconds(time.Duration(c.lastRead-sent)))
		}
		ended = ended || bytes.HasPrefix(line, []byte("data: [DONE]"))
	}
	if !errors.Is(err, io.EOF) || !ended || len(delays) != tokens {
		return nil, fmt.Errorf("the stream is incomplete: %d of %d events, end marker: %t: %w", len(delays), tokens,
			ended, err)
	}
	return delays, nil
}

// milliseconds returns d as a number.
func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// figures are the results of parallel clients of a system in one round. They count requests, or events of
// streams.
type figures struct {
	Rate     float64            // per second
	P50, P99 float64            // of the request's time, or of the event's age on arrival, in milliseconds
	CPU      map[string]float64 // per request or event, by process, in microseconds
}

// measureRequests runs n clients that repeat a task. A wrong answer is an error, because the figures would be
// meaningless.
func (s *system) measureRequests(ctx context.Context, o options, n int, t task) (figures, error) {
	clients, err := s.dialAll(n, o.Warmup+o.Load+o.AnswerLimit)
	if err != nil {
		return figures{}, err
	}
	defer closeAll(clients)
	if _, err := closedLoop(ctx, clients, o.Warmup, t); err != nil {
		return figures{}, fmt.Errorf("warming up: %w", err)
	}
	return s.measure(func() ([]float64, error) { return closedLoop(ctx, clients, o.Load, t) })
}

// measure runs load and computes the figures from the times that it returns.
func (s *system) measure(load func() ([]float64, error)) (f figures, err error) {
	before, err := s.cpu()
	if err != nil {
		return f, err
	}
	began := time.Now()
	times, err := load()
	took := time.Since(began)
	if err != nil {
		return f, err
	}
	if f.CPU, err = s.cpu(); err != nil {
		return f, err
	}
	for name := range f.CPU {
		f.CPU[name] = (f.CPU[name] - before[name]) / float64(len(times))
	}
	f.Rate = float64(len(times)) / took.Seconds()
	times = slices.DeleteFunc(times, func(t float64) bool { return t == uncounted })
	slices.Sort(times)
	f.P50, f.P99 = command.Percentile(times, 0.50), command.Percentile(times, 0.99)
	return f, nil
}

// uncounted replaces the ages of the first events of a stream, warmEvents in number.
const (
	uncounted  = -1
	warmEvents = 10
)

// closedLoop repeats a task on the clients for some time. It returns the times that it took, in milliseconds.
func closedLoop(ctx context.Context, clients []*client, d time.Duration, t task) ([]float64, error) {
	deadline := time.Now().Add(d)
	taken := make([][]float64, len(clients))
	err := parallel(clients, func(i int, c *client) error {
		for time.Now().Before(deadline) && ctx.Err() == nil {
			began := time.Now()
			if err := c.do(t); err != nil {
				return err
			}
			taken[i] = append(taken[i], milliseconds(time.Since(began)))
		}
		return context.Cause(ctx)
	})
	return slices.Concat(taken...), err
}

// measureStreams reads n streams in parallel.
func (s *system) measureStreams(ctx context.Context, o options, n int) (figures, error) {
	clients, err := s.dialAll(n, o.Stream+o.AnswerLimit)
	if err != nil {
		return figures{}, err
	}
	defer closeAll(clients)
	tokens := int(o.Stream / o.Pace)
	t := s.Target.streamed(play.Script{Tokens: tokens, Pace: o.Pace, Stamp: true})
	// Real streams are not in phase. The seed is constant, so all systems get the same phases.
	phases, random := make([]time.Duration, n), rand.New(rand.NewPCG(1, uint64(n)))
	for i := range phases {
		phases[i] = time.Duration(random.Int64N(int64(o.Pace)))
	}
	ages := make([][]float64, n)
	return s.measure(func() ([]float64, error) {
		err := parallel(clients, func(i int, c *client) (err error) {
			if err := command.Pause(ctx, phases[i]); err != nil {
				return err
			}
			if ages[i], err = c.stamps(t.request, tokens); err != nil {
				return err
			}
			for j := range min(warmEvents, tokens) {
				ages[i][j] = uncounted
			}
			return nil
		})
		return slices.Concat(ages...), errors.Join(err, context.Cause(ctx))
	})
}

// dialAll connects n clients.
func (s *system) dialAll(n int, limit time.Duration) (clients []*client, err error) {
	for range n {
		c, err := s.Target.dial(limit)
		if err != nil {
			closeAll(clients)
			return nil, fmt.Errorf("connecting to %s: %w", s.Name, err)
		}
		clients = append(clients, c)
	}
	return clients, nil
}

func closeAll(clients []*client) {
	for _, c := range clients {
		c.Close()
	}
}

// parallel runs do for all items in parallel. It returns the error of the first item that has one.
func parallel[T any](items []T, do func(i int, item T) error) error {
	errs := make([]error, len(items))
	var running sync.WaitGroup
	for i, item := range items {
		running.Go(func() { errs[i] = do(i, item) })
	}
	running.Wait()
	return cmp.Or(errs...)
}
