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
	"strings"
	"sync"
	"time"

	"github.com/drover-dev/drover/agent/retry"
)

// transports are the connections of one pull, by host: registries, token servers, and wherever those redirect to. The TLS configuration in
// registries.yaml applies to all of them.
type transports struct {
	registries Registries
	readFile   func(string) ([]byte, error)
	stall      time.Duration
	proxy      func(*http.Request) (*url.URL, error)

	mu     sync.Mutex
	byHost map[string]*http.Transport
}

// forHost returns the transport for a host, which may have a port.
func (t *transports) forHost(host string) (*http.Transport, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if known, found := t.byHost[host]; found {
		return known, nil
	}
	created := &http.Transport{
		Proxy:                 t.proxy,
		DialContext:           (&net.Dialer{Timeout: min(t.stall, 30*time.Second)}).DialContext,
		TLSHandshakeTimeout:   min(t.stall, 30*time.Second),
		ResponseHeaderTimeout: t.stall,
		ForceAttemptHTTP2:     true,
		DisableCompression:    true, // digests are those of what is sent
	}
	if config, found := lookup(t.registries.Configs, host); found && config.TLS != nil {
		var err error
		if created.TLSClientConfig, err = config.TLS.load(t.readFile); err != nil {
			return nil, &permanentError{fmt.Errorf("certificates for %s: %w", host, err)}
		}
	}
	if t.byHost == nil {
		t.byHost = map[string]*http.Transport{}
	}
	t.byHost[host] = created
	return created, nil
}

func (t *transports) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, transport := range t.byHost {
		transport.CloseIdleConnections()
	}
}

// transport carries the requests of one client. It replaces "/v2" by the endpoint's path, keeps the endpoint's scheme, tells a mirror which
// registry is meant, ends stalled transfers, and remembers Retry-After.
type transport struct {
	endpoint   endpoint
	transports *transports

	notBefore retry.NotBefore

	mu sync.Mutex
	// realm is the token server that realmPath stands for.
	realm *url.URL
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(request *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(request.Context())
	request = request.Clone(ctx)
	if request.URL.Host == t.endpoint.url.Host && !t.redirectToRealm(request) {
		t.rewrite(request)
	}
	inner, err := t.transports.forHost(request.URL.Host)
	if err != nil {
		cancel(nil)
		return nil, err
	}
	response, err := inner.RoundTrip(request)
	if err != nil {
		cancel(nil)
		return nil, err
	}
	t.notBefore.Note(response, retry.MaxRetryAfter)
	t.hideRealm(response)
	response.Body = newStallReader(ctx, cancel, response.Body, t.transports.stall)
	return response, nil
}

// rewrite turns a request to "/v2" of a registry into one to the endpoint.
func (t *transport) rewrite(request *http.Request) {
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

// stallReader ends a transfer that has received nothing for some time.
type stallReader struct {
	io.ReadCloser
	after time.Duration
	timer *time.Timer
	// ctx is that of the request. It is canceled by a stall, with an error that says so, and by Close.
	ctx    context.Context
	cancel context.CancelCauseFunc
}

func newStallReader(ctx context.Context, cancel context.CancelCauseFunc, body io.ReadCloser, after time.Duration) *stallReader {
	timer := time.AfterFunc(after, func() { cancel(fmt.Errorf("no data received for %s", after)) })
	return &stallReader{ReadCloser: body, after: after, timer: timer, ctx: ctx, cancel: cancel}
}

func (r *stallReader) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p)
	if n > 0 && r.ctx.Err() == nil {
		r.timer.Reset(r.after)
	}
	if err != nil && !errors.Is(err, io.EOF) && r.ctx.Err() != nil {
		err = context.Cause(r.ctx)
	}
	return n, err
}

func (r *stallReader) Close() error {
	r.timer.Stop()
	r.cancel(nil)
	return r.ReadCloser.Close()
}

// load reads the certificates. The machine's own authorities stay trusted beside those of CAFile.
func (t TLS) load(readFile func(string) ([]byte, error)) (*tls.Config, error) {
	config := &tls.Config{InsecureSkipVerify: t.InsecureSkipVerify}
	if err := t.validate(); err != nil {
		return nil, err
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
		cert, certErr := readFile(t.CertFile)
		key, keyErr := readFile(t.KeyFile)
		if err := errors.Join(certErr, keyErr); err != nil {
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
