//go:build linux

package lab

import (
	"os/exec"
	"runtime"
	"syscall"
	"testing"
	"time"
)

// TestHurryEnds: the end of a line kills no process that was started from its
// thread before there was a line.
func TestHurryEnds(t *testing.T) {
	cmd := exec.Command("sleep", "60")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // so that the line is on the same one
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		hurry()()
		started <- err
	}()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err := <-ended:
		t.Errorf("the process has ended: %v", err)
	case <-time.After(500 * time.Millisecond):
		_ = cmd.Process.Kill()
		<-ended
	}
}
