package artifact

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
	// attempts is how often a download is tried before it fails.
	attempts = 4
	// stallTimeout ends an attempt that has received nothing for so long.
	stallTimeout = time.Minute
)

// httpSource is a Source that downloads each file once into a temporary directory.
type httpSource struct {
	base     *url.URL
	dir      string
	client   *http.Client
	progress *progress.Reporter
	// baseDelay is the delay before the second attempt, which doubles.
	baseDelay time.Duration
	done      map[string]File
}

func newHTTPSource(base *url.URL, opts Options) *httpSource {
	client := opts.Client
	if client == nil {
		transport := http.DefaultTransport.(*http.Transport).Clone()
		transport.DialContext = (&net.Dialer{Timeout: 15 * time.Second}).DialContext
		transport.ResponseHeaderTimeout = 30 * time.Second
		client = &http.Client{Transport: transport, CheckRedirect: requireHTTPS}
	}
	return &httpSource{base: base, dir: opts.TempDir, client: client, progress: opts.Progress, baseDelay: time.Second,
		done: map[string]File{}}
}

// requireHTTPS refuses redirects away from https: the checksum file is as trustworthy as the connection that it came over.
func requireHTTPS(req *http.Request, via []*http.Request) error {
	if req.URL.Scheme != "https" {
		return fmt.Errorf("refusing redirect to %s, which is not https", req.URL.Redacted())
	}
	if len(via) >= 10 {
		return errors.New("too many redirects")
	}
	return nil
}

func (d *httpSource) Remote() bool { return true }

func (d *httpSource) String() string { return d.base.Redacted() }

// Fetch downloads a file. Connection errors, 429 and 5xx are retried from the start.
func (d *httpSource) Fetch(ctx context.Context, name string) (File, error) {
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
			case <-time.After(d.baseDelay << (attempt - 1)):
			}
		}
		var file File
		if file, err = d.attempt(ctx, from, name); err == nil {
			d.done[name] = file
			return file, nil
		}
		if final := new(permanentError); errors.As(err, &final) || ctx.Err() != nil {
			break
		}
	}
	return File{}, fmt.Errorf("downloading %s from %s: %w", name, d, err)
}

// permanentError is an error that another attempt does not cure.
type permanentError struct{ error }

func (e *permanentError) Unwrap() error { return e.error }

func (d *httpSource) attempt(ctx context.Context, from *url.URL, name string) (File, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watchdog := time.AfterFunc(stallTimeout, func() { cancel(fmt.Errorf("no data received for %s", stallTimeout)) })
	defer watchdog.Stop()

	req, err := http.NewRequestWithContext(ctx, http.MethodGet, from.String(), nil)
	if err != nil {
		return File{}, &permanentError{err}
	}
	resp, err := d.client.Do(req)
	if err != nil {
		return File{}, cause(ctx, err)
	}
	defer func() { _ = resp.Body.Close() }()
	switch {
	case resp.StatusCode == http.StatusNotFound:
		return File{}, &permanentError{ErrNotFound}
	case resp.StatusCode >= 500, resp.StatusCode == http.StatusTooManyRequests:
		return File{}, fmt.Errorf("unexpected status %s", resp.Status)
	case resp.StatusCode != http.StatusOK:
		return File{}, &permanentError{fmt.Errorf("unexpected status %s", resp.Status)}
	}

	out, err := os.CreateTemp(d.dir, "download-*")
	if err != nil {
		return File{}, &permanentError{err}
	}
	body := d.progress.Reader(&stallReader{resp.Body, watchdog}, "downloading "+name, resp.ContentLength)
	size, err := io.Copy(out, body)
	if err == nil {
		err = ctx.Err() // a canceled response may end without an error
	}
	err = errors.Join(cause(ctx, err), out.Close())
	if err != nil {
		return File{}, errors.Join(err, os.Remove(out.Name()))
	}
	return File{Name: name, Path: filepath.Clean(out.Name()), Size: size}, nil
}

// cause returns the cause of a context that is done in place of the error of its request.
func cause(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// stallReader resets the watchdog whenever something is received.
type stallReader struct {
	io.Reader
	watchdog *time.Timer
}

func (k *stallReader) Read(p []byte) (int, error) {
	n, err := k.Reader.Read(p)
	if n > 0 {
		k.watchdog.Reset(stallTimeout)
	}
	return n, err
}
