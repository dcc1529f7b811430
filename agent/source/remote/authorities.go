package remote

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/drover-dev/drover/agent/trust"
	"github.com/drover-dev/drover/plans"
)

// maxBundleBytes bounds the certificate authorities that a hub hands out.
const maxBundleBytes = 256 << 10

// authoritiesState is what Run knows of the hub's certificate authorities beyond the connection info.
type authoritiesState struct {
	// requested is set once this process has requested them, or the hub has named the checksum of the known ones.
	requested bool
	// rejected is the checksum of some that could not be used; they are not requested again.
	rejected string
}

// errNotOffered is returned when a hub hands out no authorities: every machine trusts its certificate, or it is too old.
var errNotOffered = errors.New("the hub hands out no certificate authorities")

// followAuthorities replaces the authorities of the connection info when the hub hands out others on a verified connection. It requests
// them when a response's checksum differs, and once per process where responses have none. It returns errReplaced when there are new ones.
func (s *Source) followAuthorities(ctx context.Context, c *client) error {
	known := c.config.CAData
	if s.Host == nil || len(known) == 0 {
		return nil
	}
	offered := c.transport.offeredChecksum()
	switch {
	case offered == plans.Checksum(known):
		s.authorities = authoritiesState{requested: true}
		return nil
	case offered == "" && s.authorities.requested, offered != "" && offered == s.authorities.rejected:
		return nil
	}
	s.authorities.requested = true
	raw, state, err := requestAuthorities(ctx, c.http, c)
	if lost := (*url.Error)(nil); errors.As(err, &lost) {
		s.authorities.requested = false
		return nil // the next connection may succeed
	}
	if err == nil && plans.Checksum(raw) != plans.Checksum(known) {
		err = s.acceptDelivered(c, raw, state)
	}
	if errors.Is(err, errReplaced) {
		return err
	}
	if s.authorities.rejected = c.transport.offeredChecksum(); err != nil && !errors.Is(err, errNotOffered) {
		s.Log.Warn("Rejected the hub's certificate authorities, keeping those of the connection info", "error", err)
	}
	return nil
}

// acceptDelivered accepts authorities from a connection that is verified by the known ones.
func (s *Source) acceptDelivered(c *client, raw []byte, state *tls.ConnectionState) error {
	offered, err := trust.ParseBundle(raw)
	if err != nil {
		return fmt.Errorf("decoding the hub's certificate authorities: %w", err)
	}
	// Authorities that do not fit the hub's own certificate would lock the machine out.
	if err := trust.VerifyChain(offered, state.PeerCertificates, c.serverName(), time.Now()); err != nil {
		return fmt.Errorf("the hub's certificate is not signed by the authorities that the hub hands out: %w", err)
	}
	return s.replaceAuthorities(c, raw, "delivered on a verified connection")
}

// recoverAuthorities searches a chain of signatures from the known authorities to the certificate of a hub that they do not verify. It
// returns errReplaced when there is one. Nothing that is read here is trusted for anything else.
func (s *Source) recoverAuthorities(ctx context.Context, c *client) error {
	if s.Host == nil || len(c.config.CAData) == 0 {
		return errors.New("the connection info has no certificate authorities")
	}
	known, err := trust.ParseBundle(c.config.CAData)
	if err != nil {
		return fmt.Errorf("decoding the certificate authorities of the connection info: %w", err)
	}
	unverified := c.unverified()
	defer unverified.CloseIdleConnections()
	raw, state, err := requestAuthorities(ctx, unverified, c)
	if err != nil {
		return err
	}
	offered, err := trust.ParseBundle(raw)
	if err != nil {
		return fmt.Errorf("decoding the hub's certificate authorities: %w", err)
	}
	accepted, err := trust.AcceptCAs(known, offered, state.PeerCertificates, c.serverName(), time.Now())
	if err != nil {
		return err
	}
	return s.replaceAuthorities(c, trust.EncodeBundle(accepted), "signed by the former ones")
}

func (s *Source) replaceAuthorities(c *client, raw []byte, reason string) error {
	next, err := withAuthorities(c.connection, raw)
	if err != nil {
		return err
	}
	return s.replaceConnection(c, next, func() {
		s.count(&s.connections.AuthoritiesReplaced)
		s.Log.Info("Replaced the hub's certificate authorities", "reason", reason, "old", plans.Checksum(c.config.CAData),
			"new", plans.Checksum(raw))
	})
}

// requestAuthorities requests /cacerts, and returns it with the state of the connection that it came over.
func requestAuthorities(ctx context.Context, from *http.Client, c *client) ([]byte, *tls.ConnectionState, error) {
	response, err := getPublic(ctx, from, c, "/cacerts")
	if err != nil {
		return nil, nil, fmt.Errorf("requesting the hub's certificate authorities: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK || response.TLS == nil {
		return nil, nil, fmt.Errorf("%w: unexpected status code %d", errNotOffered, response.StatusCode)
	}
	raw, err := io.ReadAll(io.LimitReader(response.Body, maxBundleBytes+1))
	if err == nil && len(raw) > maxBundleBytes {
		err = fmt.Errorf("they are larger than %d bytes", maxBundleBytes)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("requesting the hub's certificate authorities: %w", err)
	}
	return raw, response.TLS, nil
}
