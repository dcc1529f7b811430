package image

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"
)

// wires are the connections of one pull, one set for each host that it talks to: registries, and where those send it for tokens and
// layers. What registries.yaml says about a host's certificates counts for all of them.
type wires struct {
	registries Registries
	readFile   func(string) ([]byte, error)
	stall      time.Duration
	proxy      func(*http.Request) (*url.URL, error)

	mu     sync.Mutex
	byHost map[string]*http.Transport
}

func (w *wires) to(host string) (*http.Transport, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if known, found := w.byHost[host]; found {
		return known, nil
	}
	made := &http.Transport{
		Proxy:                 w.proxy,
		DialContext:           (&net.Dialer{Timeout: min(w.stall, 30*time.Second)}).DialContext,
		TLSHandshakeTimeout:   min(w.stall, 30*time.Second),
		ResponseHeaderTimeout: w.stall,
		ForceAttemptHTTP2:     true,
		DisableCompression:    true, // a digest is about what is sent
	}
	if config, found := lookup(w.registries.Configs, host); found && config.TLS != nil {
		var err error
		if made.TLSClientConfig, err = config.TLS.load(w.readFile); err != nil {
			return nil, fmt.Errorf("certificates for %s: %w", host, permanent(err))
		}
	}
	if w.byHost == nil {
		w.byHost = map[string]*http.Transport{}
	}
	w.byHost[host] = made
	return made, nil
}

// close gives connections back.
func (w *wires) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, transport := range w.byHost {
		transport.CloseIdleConnections()
	}
}

// transport carries requests for one endpoint: it puts the endpoint's path in the place of "/v2", holds on to its scheme, tells a mirror
// which registry is meant, and remembers for how long it was asked to stay away.
type transport struct {
	endpoint endpoint
	wires    *wires

	mu        sync.Mutex
	notBefore time.Time
	// realm is the token server that realmPath stands for.
	realm *url.URL
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(request *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(request.Context())
	request = request.Clone(ctx)
	if request.URL.Host == t.endpoint.url.Host && !t.unshelter(request) {
		t.direct(request)
	}
	inner, err := t.wires.to(request.URL.Host)
	if err != nil {
		cancel(nil)
		return nil, err
	}
	response, err := inner.RoundTrip(request)
	if err != nil {
		cancel(nil)
		return nil, err
	}
	t.heed(response)
	t.shelter(response)
	response.Body = newStallReader(response.Body, t.wires.stall, cancel)
	return response, nil
}

// direct makes a request to "/v2" of a registry one to the endpoint.
func (t *transport) direct(request *http.Request) {
	request.URL.Scheme = t.endpoint.url.Scheme
	rest, found := strings.CutPrefix(request.URL.Path, "/v2")
	if !found {
		return
	}
	request.URL.Path, request.URL.RawPath = t.endpoint.url.Path+rest, ""
	if t.endpoint.namespace != "" {
		query := request.URL.Query()
		query.Set("ns", t.endpoint.namespace)
		request.URL.RawQuery = query.Encode()
	}
}

// heed takes note of Retry-After, in seconds or as a date.
func (t *transport) heed(response *http.Response) {
	if response.StatusCode != http.StatusTooManyRequests && response.StatusCode != http.StatusServiceUnavailable {
		return
	}
	text := response.Header.Get("Retry-After")
	until, err := http.ParseTime(text)
	if seconds, parsed := strconv.Atoi(text); parsed == nil && seconds >= 0 && seconds <= 1<<20 {
		until, err = time.Now().Add(time.Duration(seconds)*time.Second), nil
	}
	if err != nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.notBefore = until
}

// wait tells for how long the endpoint wants to be left alone.
func (t *transport) wait() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return max(0, time.Until(t.notBefore))
}

// stallReader ends the request when nothing comes any more.
type stallReader struct {
	io.ReadCloser
	after  time.Duration
	timer  *time.Timer
	cancel context.CancelCauseFunc
	stall  chan struct{}
}

func newStallReader(body io.ReadCloser, after time.Duration, cancel context.CancelCauseFunc) *stallReader {
	r := &stallReader{ReadCloser: body, after: after, cancel: cancel, stall: make(chan struct{})}
	r.timer = time.AfterFunc(after, func() {
		close(r.stall)
		cancel(nil)
	})
	return r
}

func (r *stallReader) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p)
	select {
	case <-r.stall:
		if err != nil && !errors.Is(err, io.EOF) {
			err = &stallError{after: r.after}
		}
	default:
		if n > 0 {
			r.timer.Reset(r.after)
		}
	}
	return n, err
}

func (r *stallReader) Close() error {
	r.timer.Stop()
	r.cancel(nil)
	return r.ReadCloser.Close()
}

// stallError tells that a transfer stood still.
type stallError struct{ after time.Duration }

func (e *stallError) Error() string { return fmt.Sprintf("nothing came for %s", e.after) }

// load reads the certificates. The machine's own certificates stay trusted beside those of CAFile.
func (t TLS) load(readFile func(string) ([]byte, error)) (*tls.Config, error) {
	config := &tls.Config{InsecureSkipVerify: t.InsecureSkipVerify}
	if (t.CertFile == "") != (t.KeyFile == "") {
		return nil, errors.New("cert_file and key_file go together")
	}
	if t.CAFile != "" {
		pem, err := readFile(t.CAFile)
		if err != nil {
			return nil, err
		}
		if config.RootCAs, err = x509.SystemCertPool(); err != nil {
			config.RootCAs = x509.NewCertPool()
		}
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s holds no certificate", t.CAFile)
		}
	}
	if t.CertFile != "" {
		cert, err := readFile(t.CertFile)
		if err != nil {
			return nil, err
		}
		key, err := readFile(t.KeyFile)
		if err != nil {
			return nil, err
		}
		pair, err := tls.X509KeyPair(cert, key)
		if err != nil {
			return nil, fmt.Errorf("%s and %s: %w", t.CertFile, t.KeyFile, err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}
