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
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
)

// stallTimeout ends a transfer of which nothing has come for so long.
const stallTimeout = time.Minute

// transport carries requests for one endpoint: it puts the endpoint's path in the place of "/v2", holds on to its scheme, and tells a
// mirror which registry is meant.
type transport struct {
	endpoint endpoint
	registry string
	plain    *http.Transport // for other hosts, to which a registry may send us
	own      *http.Transport
}

func (r Registries) transport(e endpoint, registry string, readFile func(string) ([]byte, error)) (*transport, error) {
	own := newHTTPTransport()
	if config, found := lookup(r.Configs, e.url.Host); found && config.TLS != nil {
		var err error
		if own.TLSClientConfig, err = config.TLS.load(readFile); err != nil {
			return nil, fmt.Errorf("certificates for %s: %w", e.url.Host, err)
		}
	}
	return &transport{endpoint: e, registry: registry, plain: newHTTPTransport(), own: own}, nil
}

func newHTTPTransport() *http.Transport {
	return &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: 30 * time.Second}).DialContext,
		TLSHandshakeTimeout:   30 * time.Second,
		ResponseHeaderTimeout: stallTimeout,
		ForceAttemptHTTP2:     true,
	}
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(request *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(request.Context())
	request = request.Clone(ctx)
	inner := t.plain
	if request.URL.Host == t.endpoint.url.Host {
		inner = t.own
		request.URL.Scheme = t.endpoint.url.Scheme
		if rest, found := strings.CutPrefix(request.URL.Path, "/v2"); found {
			request.URL.Path, request.URL.RawPath = t.endpoint.url.Path+rest, ""
			if t.endpoint.mirror {
				query := request.URL.Query()
				query.Set("ns", t.registry)
				request.URL.RawQuery = query.Encode()
			}
		}
	}
	response, err := inner.RoundTrip(request)
	if err != nil {
		cancel(nil)
		return nil, err
	}
	response.Body = newStallReader(response.Body, cancel)
	return response, nil
}

// close gives connections back.
func (t *transport) close() {
	t.plain.CloseIdleConnections()
	t.own.CloseIdleConnections()
}

// stallReader ends the request when nothing comes any more.
type stallReader struct {
	io.ReadCloser
	timer  *time.Timer
	cancel context.CancelCauseFunc
	stall  chan struct{}
}

func newStallReader(body io.ReadCloser, cancel context.CancelCauseFunc) *stallReader {
	r := &stallReader{ReadCloser: body, cancel: cancel, stall: make(chan struct{})}
	r.timer = time.AfterFunc(stallTimeout, func() {
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
			err = fmt.Errorf("nothing came for %s: %w", stallTimeout, err)
		}
	default:
		if n > 0 {
			r.timer.Reset(stallTimeout)
		}
	}
	return n, err
}

func (r *stallReader) Close() error {
	r.timer.Stop()
	r.cancel(nil)
	return r.ReadCloser.Close()
}

// load reads the certificates. The machine's own certificates stay trusted beside those of CAFile.
func (t TLS) load(readFile func(string) ([]byte, error)) (*tls.Config, error) {
	config := &tls.Config{InsecureSkipVerify: t.InsecureSkipVerify}
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

// auth are the credentials for an endpoint.
func (r Registries) auth(e endpoint) authn.Authenticator {
	config, found := lookup(r.Configs, e.url.Host)
	if !found || config.Auth == nil {
		return authn.Anonymous
	}
	return authn.FromConfig(authn.AuthConfig{
		Username: config.Auth.Username, Password: config.Auth.Password,
		Auth: config.Auth.Auth, IdentityToken: config.Auth.IdentityToken,
	})
}

// at is the reference of an image at an endpoint.
func (e endpoint) at(ref name.Reference) (name.Reference, error) {
	var options []name.Option
	if e.url.Scheme == "http" {
		options = append(options, name.Insecure)
	}
	separator := ":"
	if _, isDigest := ref.(name.Digest); isDigest {
		separator = "@"
	}
	return name.ParseReference(e.url.Host+"/"+e.repository+separator+ref.Identifier(), options...)
}
