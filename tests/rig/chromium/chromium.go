// Package chromium starts a Chromium that asks nothing but the loopback.
package chromium

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"time"

	"github.com/chromedp/chromedp"
)

// ErrMissing is the error of a machine without a Chromium.
var ErrMissing = errors.New("there is no Chromium: install it (Debian: apt-get install chromium)")

// startLimit is how long Chromium may take to start, on a busy machine.
const startLimit = 2 * time.Minute

// Start starts a Chromium whose profile is in the folder. Pages are opened in the
// context. stop ends it.
func Start(dir string) (ctx context.Context, stop func(), err error) {
	path := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable"} {
		if path, err = exec.LookPath(name); err == nil {
			break
		}
	}
	if err != nil {
		return nil, nil, ErrMissing
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path),
		chromedp.NoSandbox, // tests may run as root, where the sandbox does not work
		chromedp.Flag("ignore-certificate-errors", true),
		chromedp.Flag("host-resolver-rules", "MAP * ~NOTFOUND, EXCLUDE localhost, EXCLUDE *.localhost, EXCLUDE 127.0.0.1"),
		chromedp.UserDataDir(dir),
		chromedp.WSURLReadTimeout(startLimit),
	)
	allocator, end := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, leave := chromedp.NewContext(allocator)
	stop = func() {
		leave()
		end()
	}
	if err := chromedp.Do(ctx); err != nil {
		stop()
		return nil, nil, fmt.Errorf("starting Chromium: %w", err)
	}
	return ctx, stop, nil
}
