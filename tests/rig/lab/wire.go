//go:build linux

package lab

import (
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// maxPacket is above every packet of a device with the usual MTU.
	maxPacket = 2048
	// queue is how many packets are on their way at most, in one direction.
	queue = 8192
)

// Conditions describe a line. The zero value is a perfect line.
type Conditions struct {
	Delay time.Duration // of each packet, in each direction
	Loss  float64       // share of the packets that are lost, 0 to 1
	// Drop, if not nil, reports whether a packet is lost. out is true from the first end to the second.
	Drop func(p Packet, out bool) bool
}

// A Wire is a line between two TUN devices.
type Wire struct {
	conditions atomic.Pointer[Conditions]
	lost       atomic.Int64
	close      func()

	mu  sync.Mutex
	tap func(p Packet, out bool)
}

// end names a wire's device in a namespace.
type end struct {
	in     *Namespace
	device string
}

// newWire connects two namespaces by devices, which are down.
func newWire(first, second end) (*Wire, error) {
	w := &Wire{}
	w.Set(Conditions{})
	a, err := openTUN(first)
	if err != nil {
		return nil, err
	}
	b, err := openTUN(second)
	if err != nil {
		a.Close()
		return nil, err
	}
	var pumps sync.WaitGroup
	pumps.Go(func() { w.pump(a, b, true) })
	pumps.Go(func() { w.pump(b, a, false) })
	w.close = func() {
		a.Close()
		b.Close()
		pumps.Wait()
	}
	return w, nil
}

// Set changes the line.
func (w *Wire) Set(c Conditions) { w.conditions.Store(&c) }

// Cut makes the line lose all packets.
func (w *Wire) Cut() { w.Set(Conditions{Loss: 1}) }

// Heal makes the line perfect again.
func (w *Wire) Heal() { w.Set(Conditions{}) }

// Lost returns the number of packets that were lost so far.
func (w *Wire) Lost() int64 { return w.lost.Load() }

// Tap calls f for each packet that passes.
func (w *Wire) Tap(f func(p Packet, out bool)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tap = f
}

// pump carries packets until a device is closed.
func (w *Wire) pump(from, to *os.File, out bool) {
	type parcel struct {
		packet Packet
		due    time.Time
	}
	road := make(chan parcel, queue)
	var arrivals sync.WaitGroup
	arrivals.Go(func() {
		defer hurry()()
		for p := range road {
			time.Sleep(time.Until(p.due))
			// A device that is down takes nothing, as a cable that is not plugged in.
			_, _ = to.Write(p.packet)
		}
	})
	defer arrivals.Wait()
	defer close(road)
	defer hurry()()
	for {
		packet := make(Packet, maxPacket)
		n, err := from.Read(packet)
		if err != nil {
			return
		}
		packet = packet[:n]
		c := w.conditions.Load()
		if c.Loss > 0 && rand.Float64() < c.Loss || c.Drop != nil && c.Drop(packet, out) {
			w.lost.Add(1)
			continue
		}
		w.show(packet, out)
		select {
		case road <- parcel{packet, time.Now().Add(c.Delay)}:
		default: // the line is full
		}
	}
}

// hurry raises the priority of the calling goroutine's thread: a real line is no slower because a machine at
// its end is busy. The goroutine must call end before it exits. Otherwise its thread would exit, and the
// kernel would kill all processes that other tests have started from it (see package rig).
func hurry() (end func()) {
	runtime.LockOSThread()
	thread := unix.Gettid()
	// Without the right to change it, the line is as slow as everything.
	_ = unix.Setpriority(unix.PRIO_PROCESS, thread, -20)
	return func() {
		_ = unix.Setpriority(unix.PRIO_PROCESS, thread, 0)
		runtime.UnlockOSThread()
	}
}

func (w *Wire) show(p Packet, out bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.tap != nil {
		w.tap(p, out)
	}
}

// openTUN makes a device. It is gone when the file is closed.
func openTUN(e end) (*os.File, error) {
	var fd int
	var err error
	e.in.Do(func() { fd, err = tun(e.device) })
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "tun "+e.device), nil
}

func tun(device string) (int, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("opening /dev/net/tun: %w", err)
	}
	request, err := unix.NewIfreq(device)
	if err != nil {
		return 0, fmt.Errorf("naming a TUN device %s: %w", device, err)
	}
	request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, request); err != nil {
		return 0, fmt.Errorf("making the TUN device %s: %w", device, err)
	}
	return fd, nil
}
