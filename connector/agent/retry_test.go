package agent

import (
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/quic-go/quic-go"

	"github.com/postern-dev/postern/connector/dial"
	"github.com/postern-dev/postern/connector/link"
)

// closedBy returns the error of a connection that the gateway closes.
func closedBy(code link.CloseCode) error {
	return fmt.Errorf("reading: %w", &quic.ApplicationError{Remote: true, ErrorCode: quic.ApplicationErrorCode(code)})
}

func TestRetryPauses(t *testing.T) {
	broken := ending{err: errors.New("broken")}
	r := retry{random: mathrand.Float64}
	r.random = func() float64 { return 1 } // each pause is its ceiling
	steps := []struct {
		name  string
		end   ending
		pause time.Duration
	}{
		{"first failure", broken, 500 * time.Millisecond},
		{"second", broken, time.Second},
		{"third", ending{err: dial.ErrSilent}, 2 * time.Second},
		{"fourth", broken, 4 * time.Second},
		{"a tunnel that broke at once", ending{err: errNoPong, lived: time.Second}, 8 * time.Second},
		{"sixth", broken, 16 * time.Second},
		{"seventh", broken, 30 * time.Second},
		{"eighth", broken, 30 * time.Second},
		{"a tunnel that lived", ending{err: errNoPong, lived: time.Minute}, 500 * time.Millisecond},
		{"again", broken, time.Second},
		{
			"a shutdown of a short tunnel",
			ending{err: closedBy(link.CloseShutdown), lived: time.Second},
			500 * time.Millisecond,
		},
		{
			"a gateway that is still shutting down",
			ending{err: link.Deny{Code: link.DenyShutdown, Retry: true}},
			time.Second,
		},
		{
			"a reset from a new gateway",
			ending{err: &quic.StatelessResetError{}, lived: 1},
			200 * time.Millisecond,
		},
		{
			"a temporary refusal",
			ending{err: link.Deny{Code: link.DenyUnavailable, Retry: true}},
			500 * time.Millisecond,
		},
		{"a final refusal", ending{err: link.Deny{Code: link.DenyCredentials}}, 30 * time.Second},
		{"another gateway", ending{err: fmt.Errorf("dialing: %w", link.ErrPin)}, time.Minute},
		{"refused again", ending{err: link.Deny{Code: link.DenyCredentials}}, 2 * time.Minute},
		{"and again", ending{err: link.Deny{Code: link.DenyCredentials}}, 4 * time.Minute},
		{"and again", ending{err: link.Deny{Code: link.DenyCredentials}}, 5 * time.Minute},
		{"and again", ending{err: link.Deny{Code: link.DenyCredentials}}, 5 * time.Minute},
		{"removed", ending{err: closedBy(link.CloseRemoved), lived: time.Hour}, 30 * time.Second},
		{"replaced", ending{err: closedBy(link.CloseReplaced), lived: time.Hour}, 30 * time.Second},
		{"refused after a tunnel", ending{err: link.Deny{Code: link.DenyCredentials}}, 30 * time.Second},
	}
	for _, step := range steps {
		if got := r.pause(step.end); got != step.pause {
			t.Errorf("%s: pause %v, want %v", step.name, got, step.pause)
		}
	}
}

func TestRetryPausesWithoutAWay(t *testing.T) {
	write := &net.OpError{Op: "write", Net: "udp4", Err: os.NewSyscallError("sendmsg", syscall.ENETUNREACH)}
	quicFails := fmt.Errorf("dialing 192.0.2.1:7: %w", errors.Join(write))
	webFails := fmt.Errorf("dialing https://192.0.2.1: %w",
		&net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.EHOSTUNREACH)})
	name := &net.DNSError{Err: "dial udp 192.0.2.53:53: connect: network is unreachable", Name: "gateway"}
	ends := []struct {
		name     string
		end      ending
		stranded bool
	}{
		{"QUIC alone", ending{err: quicFails}, true},
		{"both transports", ending{err: errors.Join(quicFails, webFails)}, true},
		{"no resolver", ending{err: errors.Join(fmt.Errorf("resolving the server: %w", name), webFails)}, true},
		{"a way for one family", ending{err: errors.Join(write, dial.ErrSilent)}, false},
		{"a way for HTTPS", ending{err: errors.Join(quicFails, dial.ErrNoHTTPS)}, false},
		{"a name that is unknown", ending{err: &net.DNSError{Err: "no such host", IsNotFound: true}}, false},
		{"a resolver that is silent", ending{err: &net.DNSError{Err: "i/o timeout", IsTimeout: true}}, false},
		{"a short tunnel", ending{err: quicFails, lived: time.Second}, false},
		{"another error", ending{err: dial.ErrSilent}, false},
	}
	for _, tt := range ends {
		r := retry{random: func() float64 { return 1 }}
		want := []time.Duration{
			500 * time.Millisecond, time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second,
			16 * time.Second, longPause, longPause,
		}
		for i, pause := range want {
			if tt.stranded {
				pause = min(pause, 2*time.Second)
			}
			if got := r.pause(tt.end); got != pause {
				t.Errorf("%s: pause %d is %v, want %v", tt.name, i+1, got, pause)
			}
		}
	}
	// A gateway that was silent before must not be dialed too often.
	r := retry{random: func() float64 { return 1 }, failures: 5}
	if got := r.pause(ending{err: quicFails}); got != 2*time.Second {
		t.Errorf("without a way: %v", got)
	}
	if got := r.pause(ending{err: dial.ErrSilent}); got != 16*time.Second {
		t.Errorf("after that, without an answer: %v", got)
	}
}

func TestRetryJitterIsFull(t *testing.T) {
	r := retry{random: func() float64 { return 0 }}
	if got := r.pause(ending{err: dial.ErrSilent}); got != 0 {
		t.Errorf("the shortest pause is %v", got)
	}
	if got := r.pause(ending{err: link.Deny{}}); got != 15*time.Second {
		t.Errorf("the shortest pause after a refusal is %v", got)
	}
}
