package artefact

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/drover-dev/drover/installer/progress"
)

const (
	// attempts is how often a download is begun before it fails.
	attempts = 4
	// stallTimeout ends an attempt in which not a byte arrives.
	stallTimeout = time.Minute
)

// downloads fetches each file once into a temporary folder.
type downloads struct {
	base     *url.URL
	dir      string
	client   *http.Client
	progress *progress.Reporter
	pause    time.Duration
	done     map[string]File
}

func newDownloads(base *url.URL, opts Options) *downloads {
	client := opts.Client
	if client == nil {
		transport := http.DefaultTransport.(*http.Transport).Clone()
		transport.DialContext = (&net.Dialer{Timeout: 15 * time.Second}).DialContext
		transport.ResponseHeaderTimeout = 30 * time.Second
		client = &http.Client{Transport: transport, CheckRedirect: onlyHTTPS}
	}
	return &downloads{base: base, dir: opts.TempDir, client: client, progress: opts.Progress, pause: time.Second,
		done: map[string]File{}}
}

// onlyHTTPS refuses to leave https on the way: the checksum file is only worth the connection it came over.
func onlyHTTPS(req *http.Request, via []*http.Request) error {
	if req.URL.Scheme != "https" {
		return fmt.Errorf("the server redirects to %s, which is not https", req.URL.Redacted())
	}
	if len(via) >= 10 {
		return errors.New("too many redirects")
	}
	return nil
}

func (d *downloads) Remote() bool { return true }

func (d *downloads) String() string { return d.base.Redacted() }

// Fetch downloads the file, again from the start where that may help.
func (d *downloads) Fetch(ctx context.Context, name string) (File, error) {
	if file, ok := d.done[name]; ok {
		return file, nil
	}
	from := d.base.JoinPath(name)
	var err error
	for attempt := range attempts {
		if attempt > 0 {
			select {
			case <-ctx.Done():
				return File{}, ctx.Err()
			case <-time.After(d.pause << (attempt - 1)):
			}
		}
		var file File
		if file, err = d.attempt(ctx, from, name); err == nil {
			d.done[name] = file
			return file, nil
		}
		if final := new(finalError); errors.As(err, &final) || ctx.Err() != nil {
			break
		}
	}
	return File{}, fmt.Errorf("downloading %s from %s: %w", name, d, err)
}

// finalError is an answer that stays the same however often one asks.
type finalError struct{ error }

func (e *finalError) Unwrap() error { return e.error }

func (d *downloads) attempt(ctx context.Context, from *url.URL, name string) (File, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watchdog := time.AfterFunc(stallTimeout, func() { cancel(fmt.Errorf("no data for %s", stallTimeout)) })
	defer watchdog.Stop()

	req, err := http.NewRequestWithContext(ctx, http.MethodGet, from.String(), nil)
	if err != nil {
		return File{}, &finalError{err}
	}
	resp, err := d.client.Do(req)
	if err != nil {
		return File{}, cause(ctx, err)
	}
	defer func() { _ = resp.Body.Close() }()
	switch {
	case resp.StatusCode == http.StatusNotFound:
		return File{}, &finalError{ErrNotFound}
	case resp.StatusCode >= 500, resp.StatusCode == http.StatusTooManyRequests:
		return File{}, fmt.Errorf("the server answers %s", resp.Status)
	case resp.StatusCode != http.StatusOK:
		return File{}, &finalError{fmt.Errorf("the server answers %s", resp.Status)}
	}

	out, err := os.CreateTemp(d.dir, "download-*")
	if err != nil {
		return File{}, &finalError{err}
	}
	body := d.progress.Reader(&kick{resp.Body, watchdog}, "downloading "+name, resp.ContentLength)
	size, err := io.Copy(out, body)
	if err == nil {
		err = ctx.Err() // a server may end its answer in order because we have hung up
	}
	err = errors.Join(cause(ctx, err), out.Close())
	if err != nil {
		return File{}, errors.Join(err, os.Remove(out.Name()))
	}
	return File{Name: name, Path: filepath.Clean(out.Name()), Size: size}, nil
}

// cause prefers why the context ended to what the ended context did to a request.
func cause(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// kick holds the watchdog off as long as bytes arrive.
type kick struct {
	io.Reader
	watchdog *time.Timer
}

func (k *kick) Read(p []byte) (int, error) {
	n, err := k.Reader.Read(p)
	if n > 0 {
		k.watchdog.Reset(stallTimeout)
	}
	return n, err
}
