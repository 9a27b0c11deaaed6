package update

import (
	"archive/tar"
	"archive/zip"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/postern-dev/postern/connector/link"
)

const (
	// fetchTimeout bounds the download of an archive.
	fetchTimeout = 15 * time.Minute
	// maxProgram bounds the program in an archive, and maxUnpacked the program and everything
	// before it, in bytes.
	maxProgram  = 256 << 20
	maxUnpacked = 2 * maxProgram
)

// Progress is called during a download with the number of bytes so far, and in total.
type Progress func(received, total int64)

// fetch downloads an offered archive to a file. The server need not be trusted.
func fetch(ctx context.Context, o link.Offer, path string, progress Progress) error {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, o.URL, nil)
	if err != nil {
		return fmt.Errorf("downloading %s: %w", o.URL, err)
	}
	client := http.Client{Transport: &http.Transport{
		Proxy:           http.ProxyFromEnvironment,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, // the hash is checked
	}, CheckRedirect: sameHost}
	defer client.CloseIdleConnections()
	response, err := client.Do(request)
	if err != nil {
		return fmt.Errorf("downloading the connector: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("downloading %s: status %d; check that this machine can open the gateway's console", o.URL,
			response.StatusCode)
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("saving the download: %w", err)
	}
	defer file.Close()
	hash := sha256.New()
	counted := &counter{size: o.Size, progress: progress}
	n, err := io.Copy(io.MultiWriter(file, hash, counted), io.LimitReader(response.Body, o.Size+1))
	switch {
	case n > o.Size:
		return fmt.Errorf("downloading %s: it is larger than the %d bytes that the gateway announced; run this again",
			o.URL, o.Size)
	case err != nil || n < o.Size:
		return fmt.Errorf("downloading %s: it ended after %d of %d bytes (%w); run this again", o.URL, n, o.Size,
			cmp.Or(err, io.ErrUnexpectedEOF))
	case !strings.EqualFold(hex.EncodeToString(hash.Sum(nil)), o.SHA256):
		return fmt.Errorf("downloading %s: its SHA-256 is not the one that the gateway announced through the tunnel; run "+
			"this again, or find out what is between this machine and the gateway", o.URL)
	}
	return file.Close()
}

// sameHost allows redirects on the host that the gateway has named, such as to HTTPS. That host
// must not lead this machine to others of its network.
func sameHost(next *http.Request, via []*http.Request) error {
	const maxRedirects = 5
	host := via[0].URL.Hostname()
	if !strings.EqualFold(next.URL.Hostname(), host) {
		return fmt.Errorf("%s redirects to another host", host)
	}
	if len(via) > maxRedirects {
		return fmt.Errorf("%s redirects more than %d times", host, maxRedirects)
	}
	return nil
}

// counter reports the progress of a download.
type counter struct {
	received, size int64
	progress       Progress
}

// Write implements [io.Writer].
func (c *counter) Write(b []byte) (int, error) {
	c.received += int64(len(b))
	if c.progress != nil {
		c.progress(min(c.received, c.size), c.size)
	}
	return len(b), nil
}

// errNoProgram means that an archive has no connector.
var errNoProgram = errors.New("the archive has no connector")

// unpack writes the program in an archive to a file, which must not exist.
func unpack(archive, path string, mode os.FileMode) error {
	file, err := os.Open(archive)
	if err != nil {
		return fmt.Errorf("unpacking the connector: %w", err)
	}
	defer file.Close()
	program, err := find(file, runtime.GOOS)
	if err != nil {
		return fmt.Errorf("unpacking the connector: %w", err)
	}
	output, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return fmt.Errorf("unpacking the connector: %w", err)
	}
	defer output.Close()
	n, err := io.Copy(output, io.LimitReader(program, maxProgram+1))
	switch {
	case err != nil:
		return fmt.Errorf("unpacking the connector: %w", err)
	case n > maxProgram:
		return fmt.Errorf("unpacking the connector: it is larger than %d bytes", maxProgram)
	}
	// The umask may have removed permissions, and the file must survive a power cut.
	return errors.Join(output.Chmod(mode), output.Sync(), output.Close())
}

// find returns the program in an archive: a regular file called connector.
func find(archive *os.File, system string) (io.Reader, error) {
	if system == "windows" {
		return findZipped(archive)
	}
	unzipped, err := gzip.NewReader(archive)
	if err != nil {
		return nil, err
	}
	reader := tar.NewReader(io.LimitReader(unzipped, maxUnpacked))
	for {
		header, err := reader.Next()
		switch {
		case err == io.EOF:
			return nil, errNoProgram
		case err != nil:
			return nil, err
		case filepath.Clean(header.Name) == "connector" && header.Typeflag == tar.TypeReg:
			return reader, nil
		}
	}
}

func findZipped(archive *os.File) (io.Reader, error) {
	info, err := archive.Stat()
	if err != nil {
		return nil, err
	}
	reader, err := zip.NewReader(archive, info.Size())
	if err != nil {
		return nil, err
	}
	for _, f := range reader.File {
		if f.Name == "connector.exe" && f.Mode().IsRegular() {
			return f.Open()
		}
	}
	return nil, errNoProgram
}
