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
	// maxFileBytes and maxResponseBytes bound a file of the registration Secret and a response of the hub.
	maxFileBytes     = 256 << 10
	maxResponseBytes = 256 << 10
	// requestTimeout bounds a request to the hub.
	requestTimeout = 30 * time.Second
	// cacheTime is how long CAs of /cacerts are used before they are fetched again.
	cacheTime = 10 * time.Minute
)

// hubClient knows the hub's URL and its CAs, and requests credentials.
type hubClient struct {
	// directory is that of the registration Secret; server and checksum are Options.Server and Options.CAChecksum.
	directory, server, checksum string

	mu sync.Mutex
	// tlsConfig is for the CAs of bundle, which were read at readAt. It is reused so that TLS sessions are resumed.
	tlsConfig *tls.Config
	bundle    string
	readAt    time.Time
}

// access returns what the tunnel needs to connect.
func (h *hubClient) access(ctx context.Context, credential string) (tunnel.Access, error) {
	server, tlsConfig, err := h.connection(ctx)
	if err != nil {
		return tunnel.Access{}, err
	}
	return tunnel.Access{Server: server, Token: credential, TLS: tlsConfig}, nil
}

// connection returns the URL of the hub and the TLS configuration for it.
func (h *hubClient) connection(ctx context.Context) (string, *tls.Config, error) {
	server, err := h.url()
	if err != nil {
		return "", nil, err
	}
	tlsConfig, err := h.tls(ctx, server)
	return server, tlsConfig, err
}

func (h *hubClient) url() (string, error) {
	if h.server != "" {
		return h.server, nil
	}
	server, err := h.readFile("url")
	if err != nil {
		return "", err
	}
	if u, err := url.Parse(server); err != nil || u.Scheme != "https" || u.Host == "" {
		return "", fmt.Errorf("no URL of the hub: set --server (CATTLE_SERVER) or %s to https://hub.example.com",
			filepath.Join(h.directory, "url"))
	}
	return server, nil
}

// registrationToken returns the token of the registration Secret; empty if it has none.
func (h *hubClient) registrationToken() (string, error) { return h.readFile("token") }

// readFile reads a file of the registration Secret; empty if it does not exist.
func (h *hubClient) readFile(name string) (string, error) {
	file, err := os.Open(filepath.Join(h.directory, name))
	if errors.Is(err, os.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("reading the registration Secret: %w", err)
	}
	defer file.Close()
	raw, err := io.ReadAll(io.LimitReader(file, maxFileBytes))
	if err != nil {
		return "", fmt.Errorf("reading the registration Secret: %w", err)
	}
	return strings.TrimSpace(string(raw)), nil
}

// tls trusts the CAs of the registration Secret; without them those of /cacerts if they match the checksum; without a checksum those of the
// machine.
func (h *hubClient) tls(ctx context.Context, server string) (*tls.Config, error) {
	bundle, err := h.readFile("ca.crt")
	if err != nil {
		return nil, err
	}
	if bundle == "" && h.checksum != "" {
		if cached := h.cached(); cached != nil {
			return cached, nil
		}
		if bundle, err = h.fetchCAs(ctx, server); err != nil {
			return nil, err
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.tlsConfig != nil && h.bundle == bundle {
		h.readAt = time.Now()
		return h.tlsConfig, nil
	}
	tlsConfig := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"},
		ClientSessionCache: tls.NewLRUClientSessionCache(2 * sessions)}
	if bundle != "" {
		certs, err := trust.ParseBundle([]byte(bundle))
		if err != nil {
			return nil, fmt.Errorf("reading the hub's CA certificates: %w", err)
		}
		tlsConfig.RootCAs = x509.NewCertPool()
		for _, cert := range certs {
			tlsConfig.RootCAs.AddCert(cert)
		}
	}
	h.tlsConfig, h.bundle, h.readAt = tlsConfig, bundle, time.Now()
	return tlsConfig, nil
}

// cached returns the configuration for CAs that were fetched recently, or nil.
func (h *hubClient) cached() *tls.Config {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.tlsConfig == nil || h.bundle == "" || time.Since(h.readAt) > cacheTime {
		return nil
	}
	return h.tlsConfig
}

// fetchCAs reads /cacerts without verification of the server and compares the checksum.
func (h *hubClient) fetchCAs(ctx context.Context, server string) (string, error) {
	unverified := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: true}
	code, _, raw, err := doRequest(ctx, unverified, http.MethodGet, server, "/cacerts", "", nil)
	if err != nil {
		return "", fmt.Errorf("fetching the hub's CA certificates: %w", err)
	}
	if code != http.StatusOK {
		return "", fmt.Errorf("fetching the hub's CA certificates: %s/cacerts returned HTTP %d", server, code)
	}
	if sum := sha256.Sum256(raw); hex.EncodeToString(sum[:]) != h.checksum {
		return "", fmt.Errorf("the hub's CA certificates have checksum %x, which is not that of --ca-checksum (CATTLE_CA_CHECKSUM): "+
			"if they were replaced, apply the cluster's manifest again; otherwise another server answers at %s", sum, server)
	}
	return string(raw), nil
}

// credentialResponse is the response to a request for a credential.
type credentialResponse struct {
	// Cluster is the name of the management Cluster, Agent that of the agent's object in the hub.
	Cluster    string    `json:"cluster"`
	Agent      string    `json:"agent"`
	Credential string    `json:"credential"`
	ExpiresAt  time.Time `json:"expiresAt"`
	RenewAfter time.Time `json:"renewAfter"`
}

// exchange exchanges a bearer token, the registration token or the current credential, for a new credential. A response without one is a
// *registration.StatusError.
func (h *hubClient) exchange(ctx context.Context, bearer, agent string) (credentialResponse, error) {
	server, tlsConfig, err := h.connection(ctx)
	if err != nil {
		return credentialResponse{}, err
	}
	body, err := json.Marshal(map[string]string{"agent": agent})
	if err != nil {
		return credentialResponse{}, err
	}
	code, header, raw, err := doRequest(ctx, tlsConfig, http.MethodPost, server, "/v3/connect/credential", bearer, body)
	if err != nil {
		return credentialResponse{}, fmt.Errorf("requesting a credential from the hub: %w", err)
	}
	if code != http.StatusOK {
		return credentialResponse{}, registration.NewStatusError(code, header, raw)
	}
	var r credentialResponse
	if json.Unmarshal(raw, &r) != nil || r.Credential == "" || strings.ContainsFunc(r.Credential, notPrintable) ||
		!r.ExpiresAt.After(r.RenewAfter) || r.RenewAfter.IsZero() {
		return credentialResponse{}, errors.New("requesting a credential from the hub: invalid response") // the cause could quote it
	}
	return r, nil
}

func notPrintable(c rune) bool { return c <= ' ' || c > '~' }

// doRequest makes one request to the hub and returns status, header and body of the response.
func doRequest(
	ctx context.Context, tlsConfig *tls.Config, method, server, path, bearer string, body []byte,
) (int, http.Header, []byte, error) {
	client := &http.Client{
		Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: tlsConfig, TLSHandshakeTimeout: requestTimeout / 2},
		Timeout:   requestTimeout,
		// A redirect would send the token to another server.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	defer client.CloseIdleConnections()
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
	raw, err := io.ReadAll(io.LimitReader(response.Body, maxResponseBytes+1))
	if err == nil && len(raw) > maxResponseBytes {
		err = fmt.Errorf("the response is larger than %d bytes", maxResponseBytes)
	}
	return response.StatusCode, response.Header, raw, err
}
