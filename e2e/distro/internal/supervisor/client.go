package supervisor

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// Client asks a server.
type Client struct {
	// CACerts is the server's CA file, which the token vouched for if it was a full one.
	CACerts []byte

	url, secret string
	http        *http.Client
}

// ErrRefused is in the error when the server does not take the token; trying again is of no use.
var ErrRefused = errors.New("the server refuses the token")

// Dial fetches the CA file of the server at url, checks it against the token and returns a client that trusts it. If
// known is given, it is the CA file that the server must have.
func Dial(ctx context.Context, url, token string, known []byte) (*Client, error) {
	hash, secret, err := ParseToken(token)
	if err != nil {
		return nil, err
	}
	c := &Client{url: url, secret: secret, CACerts: known}
	if len(known) == 0 {
		c.http = client(&tls.Config{InsecureSkipVerify: true}) // the answer is checked below against the hash in the token, if it has one
		if c.CACerts, err = c.do(ctx, http.MethodGet, "/cacerts", nil, false); err != nil {
			return nil, err
		}
	}
	if hash != "" && authorityHash(c.CACerts) != hash {
		return nil, fmt.Errorf("%w: the token is for a cluster with another CA than that of %s", ErrRefused, url)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(c.CACerts) {
		return nil, fmt.Errorf("%s gave no CA certificates", url)
	}
	c.http = client(&tls.Config{RootCAs: pool})
	return c, nil
}

// WithTimeout sets how long the server may take for an answer, 20 s otherwise.
func (c *Client) WithTimeout(d time.Duration) *Client {
	c.http.Timeout = d
	return c
}

func client(conf *tls.Config) *http.Client {
	return &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{TLSClientConfig: conf, DisableKeepAlives: true}}
}

// Settings asks for what an agent takes over.
func (c *Client) Settings(ctx context.Context) (s Settings, err error) {
	return s, c.get(ctx, path("config"), &s)
}

// Bootstrap asks for the authorities and their keys.
func (c *Client) Bootstrap(ctx context.Context) (b Bundle, err error) {
	return b, c.get(ctx, path("server-bootstrap"), &b)
}

// APIServers asks for the addresses of all API servers.
func (c *Client) APIServers(ctx context.Context) (out []string, err error) {
	return out, c.get(ctx, path("apiservers"), &out)
}

// Etcd asks for the members of etcd.
func (c *Client) Etcd(ctx context.Context) (i Info, err error) { return i, c.get(ctx, "/db/info", &i) }

// Sign asks for certificates.
func (c *Client) Sign(ctx context.Context, req SignRequest) (out SignResponse, err error) {
	return out, c.Call(ctx, http.MethodPost, path("certificates"), req, &out)
}

func (c *Client) get(ctx context.Context, path string, into any) error {
	return c.Call(ctx, http.MethodGet, path, nil, into)
}

// Call asks for any path; body and answer are JSON.
func (c *Client) Call(ctx context.Context, method, path string, body, into any) error {
	raw, err := json.Marshal(body)
	if err != nil {
		return err
	}
	if raw, err = c.do(ctx, method, path, raw, true); err != nil || into == nil {
		return err
	}
	return json.Unmarshal(raw, into)
}

func (c *Client) do(ctx context.Context, method, path string, body []byte, auth bool) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.url+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if auth {
		req.SetBasicAuth("node", c.secret)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, fmt.Errorf("asking the server: %w", err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, 4<<20))
	if err != nil {
		return nil, fmt.Errorf("asking %s%s: %w", c.url, path, err)
	}
	switch {
	case resp.StatusCode == http.StatusUnauthorized:
		return nil, fmt.Errorf("%w: %s%s", ErrRefused, c.url, path)
	case resp.StatusCode/100 != 2:
		return nil, fmt.Errorf("asking %s%s: %s: %s", c.url, path, resp.Status, strings.TrimSpace(string(raw)))
	}
	return raw, nil
}
