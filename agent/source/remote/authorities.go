package remote

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/drover-dev/drover/agent/trust"
)

// maxBundle bounds what a hub hands out as its authorities.
const maxBundle = 256 << 10

// rotation is what Run knows of the hub's authorities, beyond the connection info.
type rotation struct {
	// asked is set once this process has asked for them, or the hub has told that they are the known ones.
	asked bool
	// declined is the checksum of some that could not be taken; they are not asked for again.
	declined string
}

// errNotOffered tells that a hub hands out no authorities: its certificate is one that every machine trusts, or it knows no such page.
var errNotOffered = errors.New("the hub hands out no certificate authorities")

// followAuthorities takes the authorities that the hub hands out on a verified connection, when they are others than those of the
// connection info. It asks for them where an answer tells that they are, and once in the life of the process where answers do not tell. It
// returns errReplaced when there are new ones.
func (s *Source) followAuthorities(ctx context.Context, c *client) error {
	known := c.config.CAData
	if s.host == nil || len(known) == 0 {
		return nil
	}
	switch offered := c.transport.offered(); offered {
	case checksum(known):
		s.rotation = rotation{asked: true}
		return nil
	case "":
		if s.rotation.asked {
			return nil
		}
	case s.rotation.declined:
		return nil
	}
	s.rotation.asked = true
	raw, state, err := fetchAuthorities(ctx, c.http, c)
	if lost := (*url.Error)(nil); errors.As(err, &lost) {
		s.rotation.asked = false
		return nil // on the way; the next connection tells more
	}
	if err == nil && checksum(raw) != checksum(known) {
		err = s.takeDelivered(c, raw, state)
	}
	if errors.Is(err, errReplaced) {
		return err
	}
	if s.rotation.declined = c.transport.offered(); err != nil && !errors.Is(err, errNotOffered) {
		s.log.Warn("The certificate authorities of the hub cannot be taken, those of the connection info stay", "error", err)
	}
	return nil
}

// takeDelivered takes authorities that came over a connection which the known ones vouch for.
func (s *Source) takeDelivered(c *client, raw []byte, state *tls.ConnectionState) error {
	offered, err := trust.ParseBundle(raw)
	if err != nil {
		return fmt.Errorf("decoding the hub's certificate authorities: %w", err)
	}
	// A hub that hands out what does not fit its own certificate would lock the machine out.
	if err := trust.Fits(offered, state.PeerCertificates, nil, c.serverName(), time.Now()); err != nil {
		return fmt.Errorf("the hub's own certificate is not of the authorities that it hands out: %w", err)
	}
	return s.replaceAuthorities(c, raw, "delivered under the old ones")
}

// recoverAuthorities looks for a way from the known authorities to that of a hub whose certificate they do not vouch for. It returns
// errReplaced when there is one. Nothing that is read here is trusted for anything else.
func (s *Source) recoverAuthorities(ctx context.Context, c *client) error {
	if s.host == nil || len(c.config.CAData) == 0 {
		return errors.New("there are no authorities to compare with")
	}
	known, err := trust.ParseBundle(c.config.CAData)
	if err != nil {
		return fmt.Errorf("decoding the certificate authorities of the connection info: %w", err)
	}
	unverified := c.unverified()
	defer unverified.CloseIdleConnections()
	raw, state, err := fetchAuthorities(ctx, unverified, c)
	if err != nil {
		return err
	}
	offered, err := trust.ParseBundle(raw)
	if err != nil {
		return fmt.Errorf("decoding the hub's certificate authorities: %w", err)
	}
	accepted, err := trust.SignedByOld(known, offered, state.PeerCertificates, c.serverName(), time.Now())
	if err != nil {
		return err
	}
	return s.replaceAuthorities(c, trust.EncodeBundle(accepted), "signed by the old ones")
}

func (s *Source) replaceAuthorities(c *client, raw []byte, why string) error {
	next, err := withAuthorities(c.connection, raw)
	if err != nil {
		return err
	}
	if err := s.store(c, next); err != nil {
		return err
	}
	s.counters.authoritiesReplaced.Add(1)
	s.log.Info("The hub's certificate authorities have been replaced", "why", why, "old", checksum(c.config.CAData), "new", checksum(raw))
	return errReplaced
}

// fetchAuthorities reads /cacerts and tells what connection it came over.
func fetchAuthorities(ctx context.Context, from *http.Client, c *client) ([]byte, *tls.ConnectionState, error) {
	response, err := fetch(ctx, from, c, "/cacerts")
	if err != nil {
		return nil, nil, fmt.Errorf("asking for the hub's certificate authorities: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK || response.TLS == nil {
		return nil, nil, fmt.Errorf("%w: it answers %d", errNotOffered, response.StatusCode)
	}
	raw, err := io.ReadAll(io.LimitReader(response.Body, maxBundle+1))
	switch {
	case err != nil:
		return nil, nil, fmt.Errorf("asking for the hub's certificate authorities: %w", err)
	case len(raw) > maxBundle:
		return nil, nil, fmt.Errorf("asking for the hub's certificate authorities: there are more than %d bytes of them", maxBundle)
	}
	return raw, response.TLS, nil
}

// fetch asks for a public page. No redirect is followed. The answer must be read within callTimeout.
func fetch(ctx context.Context, from *http.Client, c *client, path string) (*http.Response, error) {
	address, err := url.JoinPath(c.config.Host, path)
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("User-Agent", userAgent)
	once := *from
	once.Timeout = callTimeout
	once.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return once.Do(request)
}

// unverified is a client that talks to anybody. Only public pages are read by it, and no credential is sent.
func (c *client) unverified() *http.Client {
	proxy := c.config.Proxy
	if proxy == nil {
		proxy = http.ProxyFromEnvironment
	}
	return &http.Client{Transport: &http.Transport{Proxy: proxy, TLSHandshakeTimeout: 10 * time.Second,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12, ServerName: c.config.ServerName}}}
}

// serverName is the name that the hub's certificate must be for.
func (c *client) serverName() string {
	if c.config.ServerName != "" {
		return c.config.ServerName
	}
	address, err := url.Parse(c.config.Host)
	if err != nil {
		return ""
	}
	return address.Hostname()
}

func checksum(raw []byte) string {
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:])
}

// isForeign tells whether a certificate was refused because nobody who is trusted has signed it.
func isForeign(err error) bool {
	var authority x509.UnknownAuthorityError
	return errors.As(err, &authority)
}
