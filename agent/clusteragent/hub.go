package clusteragent

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/drover-dev/drover/agent/registration"
	"github.com/drover-dev/drover/agent/trust"
	"github.com/drover-dev/drover/agent/tunnel"
)

const (
	// maxFile and maxAnswer bound what is read of files and of the hub.
	maxFile   = 256 << 10
	maxAnswer = 256 << 10
	// callTimeout ends a request to the hub that gets no answer.
	callTimeout = 30 * time.Second
	// fetchedFor is how long authorities are good that were fetched and compared with the checksum.
	fetchedFor = 10 * time.Minute
)

// hub is where the agent connects to, and how it knows that it is the one.
type hub struct {
	folder, server, checksum string

	mu sync.Mutex
	// config belongs to the authorities known, which were read at the time read. It is kept so that TLS sessions are resumed.
	config *tls.Config
	known  string
	read   time.Time
}

// access is what the tunnel connects with.
func (h *hub) access(ctx context.Context, credential string) (tunnel.Access, error) {
	server, err := h.address()
	if err != nil {
		return tunnel.Access{}, err
	}
	config, err := h.tls(ctx, server)
	if err != nil {
		return tunnel.Access{}, err
	}
	return tunnel.Access{Server: server, Token: credential, TLS: config}, nil
}

func (h *hub) address() (string, error) {
	if h.server != "" {
		return h.server, nil
	}
	server, err := h.file("url")
	if err != nil {
		return "", err
	}
	if u, err := url.Parse(server); err != nil || u.Scheme != "https" || u.Host == "" {
		return "", fmt.Errorf("nothing says where the hub is: set --server (CATTLE_SERVER) to https://hub.example.com, or put that into %s", filepath.Join(h.folder, "url"))
	}
	return server, nil
}

// registrationToken is empty where there is none.
func (h *hub) registrationToken() (string, error) { return h.file("token") }

// file reads a file of the registration Secret; it is empty where there is none.
func (h *hub) file(name string) (string, error) {
	file, err := os.Open(filepath.Join(h.folder, name))
	if errors.Is(err, os.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("reading the registration Secret: %w", err)
	}
	defer file.Close()
	raw, err := io.ReadAll(io.LimitReader(file, maxFile))
	if err != nil {
		return "", fmt.Errorf("reading the registration Secret: %w", err)
	}
	return strings.TrimSpace(string(raw)), nil
}

// tls trusts the authorities of the registration Secret; without them those that the hub shows, if they have the checksum; without that
// those of the machine.
func (h *hub) tls(ctx context.Context, server string) (*tls.Config, error) {
	bundle, err := h.file("ca.crt")
	if err != nil {
		return nil, err
	}
	if bundle == "" && h.checksum != "" {
		if config := h.fetched(); config != nil {
			return config, nil
		}
		if bundle, err = h.fetchAuthorities(ctx, server); err != nil {
			return nil, err
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.config != nil && h.known == bundle {
		h.read = time.Now()
		return h.config, nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}, ClientSessionCache: tls.NewLRUClientSessionCache(2 * sessions)}
	if bundle != "" {
		certs, err := trust.ParseBundle([]byte(bundle))
		if err != nil {
			return nil, fmt.Errorf("reading the hub's certificate authorities: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		for _, cert := range certs {
			config.RootCAs.AddCert(cert)
		}
	}
	h.config, h.known, h.read = config, bundle, time.Now()
	return config, nil
}

func (h *hub) fetched() *tls.Config {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.config == nil || h.known == "" || time.Since(h.read) > fetchedFor {
		return nil
	}
	return h.config
}

// fetchAuthorities reads /cacerts from whoever answers; the checksum tells whether it was the hub.
func (h *hub) fetchAuthorities(ctx context.Context, server string) (string, error) {
	client := newHTTPClient(&tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: true})
	defer client.CloseIdleConnections()
	code, raw, _, err := call(ctx, client, http.MethodGet, server, "/cacerts", "", nil)
	if err != nil {
		return "", fmt.Errorf("asking for the hub's certificate authorities: %w", err)
	}
	if code != http.StatusOK {
		return "", fmt.Errorf("asking for the hub's certificate authorities: %s/cacerts answers %d", server, code)
	}
	if sum := sha256.Sum256(raw); hex.EncodeToString(sum[:]) != h.checksum {
		return "", fmt.Errorf("the hub's certificate authorities have the checksum %x and not that of --ca-checksum (CATTLE_CA_CHECKSUM): "+
			"if they were replaced, apply the cluster's manifest anew; if not, something else answers at %s", sum, server)
	}
	return string(raw), nil
}

// answer is a credential.
type answer struct {
	Cluster    string    `json:"cluster"`
	Agent      string    `json:"agent"`
	Credential string    `json:"credential"`
	ExpiresAt  time.Time `json:"expiresAt"`
	RenewAfter time.Time `json:"renewAfter"`
}

// exchange gets a credential for a bearer token, which is the registration token or a credential from before. An answer that is none is a
// *tunnel.Refusal.
func (h *hub) exchange(ctx context.Context, bearer, agent string) (answer, error) {
	server, err := h.address()
	if err != nil {
		return answer{}, err
	}
	config, err := h.tls(ctx, server)
	if err != nil {
		return answer{}, err
	}
	body, err := json.Marshal(map[string]string{"agent": agent})
	if err != nil {
		return answer{}, err
	}
	client := newHTTPClient(config)
	defer client.CloseIdleConnections()
	code, raw, header, err := call(ctx, client, http.MethodPost, server, "/v3/connect/credential", bearer, body)
	if err != nil {
		return answer{}, fmt.Errorf("asking the hub for a credential: %w", err)
	}
	if code != http.StatusOK {
		message := registration.OneLine(raw)
		if message == "" {
			message = http.StatusText(code)
		}
		return answer{}, &tunnel.Refusal{Code: code, Message: message, RetryAfter: registration.RetryAfter(header, time.Now())}
	}
	var a answer
	if json.Unmarshal(raw, &a) != nil || a.Credential == "" || strings.ContainsFunc(a.Credential, notPrintable) || !a.ExpiresAt.After(a.RenewAfter) || a.RenewAfter.IsZero() {
		return answer{}, errors.New("asking the hub for a credential: what it answers is none") // the cause could quote it
	}
	return a, nil
}

func notPrintable(c rune) bool { return c <= ' ' || c > '~' }

func newHTTPClient(config *tls.Config) *http.Client {
	return &http.Client{
		Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: config, TLSHandshakeTimeout: callTimeout / 2},
		Timeout:   callTimeout,
		// The token would be sent along to wherever a redirect leads.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// call makes one request and reads the answer.
func call(ctx context.Context, client *http.Client, method, server, path, bearer string, body []byte) (int, []byte, http.Header, error) {
	address, err := url.JoinPath(server, path)
	if err != nil {
		return 0, nil, nil, err
	}
	request, err := http.NewRequestWithContext(ctx, method, address, bytes.NewReader(body))
	if err != nil {
		return 0, nil, nil, err
	}
	if bearer != "" {
		request.Header.Set("Authorization", "Bearer "+bearer)
		request.Header.Set("Content-Type", "application/json")
	}
	response, err := client.Do(request)
	if err != nil {
		return 0, nil, nil, err
	}
	defer response.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	if err == nil && len(raw) > maxAnswer {
		err = fmt.Errorf("the answer has more than %d bytes", maxAnswer)
	}
	return response.StatusCode, raw, response.Header, err
}
