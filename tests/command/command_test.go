package command

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
)

// tested is the test binary, as a command.
func tested() Command {
	return Command{Name: "tested", Roles: map[string]Role{
		"echo": func(_ context.Context, in io.Reader, out io.Writer) error {
			_, err := io.Copy(out, in)
			return err
		},
		"wait": func(ctx context.Context, _ io.Reader, out io.Writer) error {
			fmt.Fprintln(out, "waiting for "+os.Getenv("FOR"))
			<-ctx.Done()
			return errors.New("it was told to end")
		},
	}}
}

func TestMain(m *testing.M) {
	tested().RunRole()
	os.Exit(m.Run())
}

func TestRoles(t *testing.T) {
	echo := tested().InRole("echo")
	echo.Stdin = strings.NewReader("hello")
	if out, err := echo.Output(); err != nil || string(out) != "hello" {
		t.Errorf("the role said %q, %v", out, err)
	}
	out, err := tested().InRole("dance").CombinedOutput()
	if err == nil || string(out) != "tested: POSTERN_TESTED_ROLE: \"dance\" is no role\n" {
		t.Errorf("a role that does not exist said %q, %v", out, err)
	}
}

func TestRoleEndsAtASignal(t *testing.T) {
	wait := tested().InRole("wait", "FOR=the end")
	var failed strings.Builder
	wait.Stderr = &failed
	out, err := wait.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := wait.Start(); err != nil {
		t.Fatal(err)
	}
	line, _ := bufio.NewReader(out).ReadString('\n')
	if line != "waiting for the end\n" {
		t.Errorf("it began with %q", line)
	}
	if err := wait.Process.Signal(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	_ = wait.Wait() // an error: that is the next line's
	if code := wait.ProcessState.ExitCode(); code != 1 || failed.String() != "tested: it was told to end\n" {
		t.Errorf("it ended with %d and %q", code, failed.String())
	}
}

func TestExplain(t *testing.T) {
	ctx, fail := context.WithCancelCause(t.Context())
	if err := Explain(ctx, os.ErrClosed); err != os.ErrClosed {
		t.Errorf("of a run that was not ended: %v", err)
	}
	fail(os.ErrNotExist)
	if err := Explain(ctx, os.ErrClosed); !errors.Is(err, os.ErrNotExist) || !errors.Is(err, os.ErrClosed) {
		t.Errorf("of a run that was ended: %v", err)
	}
}
