//go:build linux

//lint:file-ignore SA1019 the peer of a tunnel is HTTP/2 on a connection of its own, as in package link

package attack

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/tests/harness"
)

// pace is the pause of a flood after so many frames: enough to see what grows, on
// a machine that has other things to do, too.
const (
	framesAtOnce = 200
	pace         = 2 * time.Millisecond
)

// A flood is frames that a peer sends without end; n counts them.
type flood struct {
	name string
	send func(p *peer, n uint32)
}

func floods() []flood {
	large := strings.Repeat("x", 12<<10)
	return []flood{
		{"pings", func(p *peer, _ uint32) { p.note(p.framer.WritePing(false, [8]byte{})) }},
		{"settings", func(p *peer, n uint32) {
			p.note(p.framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: n % (1 << 20)}))
		}},
		{"resets", func(p *peer, n uint32) { p.note(p.framer.WriteRSTStream(2*n+2, http2.ErrCodeCancel)) }},
		{"streams", func(p *peer, n uint32) { p.open(2*n+2, true) }},
		{"rapid resets", func(p *peer, n uint32) {
			p.open(2*n+3, false)
			p.note(p.framer.WriteRSTStream(2*n+3, http2.ErrCodeCancel))
		}},
		{"continuations", func(p *peer, n uint32) {
			if n == 0 {
				p.note(p.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: control, BlockFragment: headers(":status", "200")}))
			}
			p.note(p.framer.WriteContinuation(control, false, headers("a", large)))
		}},
		{"empty continuations", func(p *peer, n uint32) {
			if n == 0 {
				p.note(p.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: control}))
			}
			p.note(p.framer.WriteContinuation(control, false, nil))
		}},
		{"header", func(p *peer, _ uint32) {
			p.note(p.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: control, BlockFragment: headers(":status", "200", "a", large), EndHeaders: true}))
		}},
		{"informational", func(p *peer, _ uint32) {
			p.note(p.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: control, BlockFragment: headers(":status", "103", "link", "x"), EndHeaders: true}))
		}},
		{"data of nothing", func(p *peer, _ uint32) { p.note(p.framer.WriteData(control, false, nil)) }},
		{"padding", func(p *peer, _ uint32) { p.note(p.framer.WriteDataPadded(control, false, nil, make([]byte, 255))) }},
		{"window updates", func(p *peer, n uint32) { p.note(p.framer.WriteWindowUpdate(n%2, 1)) }},
		{"promises", func(p *peer, n uint32) {
			p.note(p.framer.WritePushPromise(http2.PushPromiseParam{StreamID: control, PromiseID: 2*n + 2, BlockFragment: headers(":method", "GET"), EndHeaders: true}))
		}},
		{"unknown frames", func(p *peer, _ uint32) { p.note(p.framer.WriteRawFrame(0x77, 0, 0, []byte(large))) }},
		{"priorities", func(p *peer, n uint32) {
			p.note(p.framer.WritePriority(2*n+3, http2.PriorityParam{Weight: 1}))
		}},
	}
}

// open sends the header of a stream.
func (p *peer) open(id uint32, end bool) {
	p.note(p.framer.WriteHeaders(http2.HeadersFrameParam{
		StreamID: id, BlockFragment: headers(":method", "POST", ":path", "/v1/chat/completions", ":scheme", "https", ":authority", "x"),
		EndHeaders: true, EndStream: end,
	}))
}

// flood sends until the gateway has enough of it. Every second peer does not even
// read.
func (p *peer) flood(ctx context.Context, f flood, deaf bool) (frames uint32) {
	if !deaf {
		go func() { _, _ = io.Copy(io.Discard, p.conn) }()
	}
	for ; p.err == nil && ctx.Err() == nil; frames++ {
		f.send(p, frames)
		if frames%framesAtOnce == framesAtOnce-1 {
			time.Sleep(pace)
		}
	}
	return frames
}

// tally is how many frames were taken, by flood.
type tally struct {
	sync.Mutex
	frames map[string]int
}

func (c *tally) add(name string, frames uint32) {
	c.Lock()
	defer c.Unlock()
	if c.frames == nil {
		c.frames = make(map[string]int)
	}
	c.frames[name] += int(frames)
}

// flooding has two peers for each flood, which come again when they are cut.
func flooding(begin func(ctx context.Context, g *target, i int) (*peer, error)) func(context.Context, *target) string {
	return func(ctx context.Context, g *target) string {
		var count tally
		all := floods()
		crowd(ctx, 2*len(all), func(i, _ int) error {
			p, err := begin(ctx, g, i)
			if err != nil {
				return err
			}
			defer p.conn.NetConn().Close()
			defer context.AfterFunc(ctx, func() { _ = p.conn.NetConn().Close() })()
			f := all[i%len(all)]
			count.add(f.name, p.flood(ctx, f, i >= len(all)))
			time.Sleep(50 * time.Millisecond) // of which others would see nothing
			return nil
		})
		return fmt.Sprint(count.frames)
	}
}

// TestFloods: connectors over WebSockets that flood the gateway with frames of
// HTTP/2, which they have to know nothing for, or after a valid hello.
func TestFloods(t *testing.T) {
	join := func(ctx context.Context, g *target, i int) (*peer, error) {
		raw, err := dialWebSocket(ctx, g, i)
		if err != nil {
			return nil, err
		}
		p, err := newPeer(ctx, raw, g.tokens[0].Pin)
		if err != nil {
			_ = raw.Close()
		}
		return p, err
	}
	t.Run("before the hello", func(t *testing.T) {
		newTarget(t, harness.Options{}).endure(t, flooding(join))
	})
	t.Run("after the hello", func(t *testing.T) {
		g := newTarget(t, harness.Options{})
		g.hostile(t, 2*len(floods()))
		g.endure(t, flooding(func(ctx context.Context, g *target, i int) (*peer, error) {
			p, err := join(ctx, g, i)
			if err != nil {
				return nil, err
			}
			token := g.tokens[i]
			p.answer()
			p.say(link.Hello{Connector: token.Connector, Secret: token.Secret, Instance: strconv.Itoa(i), Upstreams: []string{"default"}})
			return p, p.err
		}))
	})
}

// TestClientFloods: the same by clients of the API, which need no key for it.
func TestClientFloods(t *testing.T) {
	newTarget(t, harness.Options{HTTPS: true}).endure(t, flooding(func(ctx context.Context, g *target, i int) (*peer, error) {
		dialer := tls.Dialer{
			NetDialer: &net.Dialer{LocalAddr: &net.TCPAddr{IP: address(i)}},
			Config:    &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}, ServerName: "localhost"},
		}
		conn, err := dialer.DialContext(ctx, "tcp4", strings.TrimPrefix(g.URL, "https://"))
		if err != nil {
			return nil, err
		}
		p := &peer{conn: conn.(*tls.Conn), framer: http2.NewFramer(conn, conn)}
		p.framer.AllowIllegalReads, p.framer.AllowIllegalWrites = true, true
		_, err = io.WriteString(conn, http2.ClientPreface)
		p.note(err)
		p.note(p.framer.WriteSettings())
		p.open(control, false)
		return p, p.err
	}))
}

// TestSlowClients: requests that do not come to their end, among them upgrades of
// the tunnel.
func TestSlowClients(t *testing.T) {
	newTarget(t, harness.Options{}).endure(t, func(ctx context.Context, g *target) string {
		starts := []string{
			"", "GET " + link.WebSocketPath + " HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nA: ",
			"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 30000000\r\n\r\n",
			"GET / HTTP/1.1\r\nHost: x\r\nA: " + strings.Repeat("a", 500<<10),
		}
		runs, failed := crowd(ctx, attackers, func(i, _ int) error {
			dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: address(i)}}
			conn, err := dialer.DialContext(ctx, "tcp", strings.TrimPrefix(g.URL, "http://"))
			if err != nil {
				return err
			}
			defer conn.Close()
			defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
			go func() { _, _ = io.Copy(io.Discard, conn) }()
			_, err = io.WriteString(conn, starts[i%len(starts)])
			for err == nil {
				_, err = conn.Write([]byte("x"))
				time.Sleep(time.Second)
			}
			return nil
		})
		return fmt.Sprintf("%d connections, %d of them refused", runs, failed)
	})
}

// answers are what upstreams say without an end.
func answers() map[string]string {
	text := strings.Repeat("x", 2<<10)
	const ok = "HTTP/1.1 200 OK\r\n"
	return map[string]string{
		"json":          ok + "Content-Type: application/json\r\nContent-Length: 9000000000\r\n\r\n{\"choices\":[{\"message\":{\"content\":\"" + "\x00" + text,
		"event":         ok + "Content-Type: text/event-stream\r\nContent-Length: 9000000000\r\n\r\ndata: " + "\x00" + text,
		"header":        ok + "\x00A: " + text + "\r\n",
		"informational": "\x00HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n",
		"error":         "HTTP/1.1 500 Oh\r\nContent-Type: application/json\r\nContent-Length: 9000000000\r\n\r\n{\"error\":{\"message\":\"" + "\x00" + text,
		"tool-calls": ok + "Content-Type: text/event-stream\r\nContent-Length: 9000000000\r\n\r\n\x00" +
			`data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"c","type":"function","function":{"name":"f","arguments":"` + text + `"}}]}}]}` + "\n\n",
	}
}

// TestEndlessAnswers: upstreams that do not end what they say, in all dialects.
func TestEndlessAnswers(t *testing.T) {
	g := newTarget(t, harness.Options{Site: "connect_wait 1s"})
	var names []string
	for name, script := range answers() {
		names = append(names, name)
		start, again, _ := strings.Cut(script, "\x00")
		g.endless(name, start, again)
		g.Deploy(t, name, link.TransportQUIC, "", name)
	}
	g.endure(t, func(ctx context.Context, g *target) string {
		var count tally
		dialects := []string{"/v1/chat/completions", "/v1/responses", "/v1/messages"}
		crowd(ctx, 2*len(names)*len(dialects), func(i, _ int) error {
			name, path, stream := names[i%len(names)], dialects[i/len(names)%len(dialects)], i >= len(names)*len(dialects)
			body := fmt.Sprintf(`{"model":%q,"max_tokens":9,"stream":%t,"messages":[{"role":"user","content":"x"}]}`, name, stream)
			if path == "/v1/responses" {
				body = fmt.Sprintf(`{"model":%q,"stream":%t,"input":"x"}`, name, stream)
			}
			limited, cancel := context.WithTimeout(ctx, lasts/2)
			defer cancel()
			answer, err := g.client.HTTP.Do(g.client.Request(limited, t, http.MethodPost, path, body))
			if err != nil {
				return nil
			}
			defer answer.Body.Close()
			n, _ := io.Copy(io.Discard, answer.Body)
			count.add(fmt.Sprintf("%s of %s, stream %t: %d", name, path, stream, answer.StatusCode), uint32(n>>10))
			time.Sleep(pace)
			return nil
		})
		return fmt.Sprint(count.frames, " KiB")
	})
}
