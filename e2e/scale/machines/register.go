package machines

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/drover-dev/drover/agent/config"
	"github.com/drover-dev/drover/agent/registration"
	"github.com/drover-dev/drover/agent/retry"
)

// Hub is how machines reach the hub.
type Hub struct {
	// URL is that of the gateway, CACerts its certificate authorities in PEM.
	URL     string
	CACerts []byte
}

// Machine is what a machine is made with.
type Machine struct {
	// Name of its Machine, and of its Node.
	Name string
	// Token registers it.
	Token string
	// Address is its own, of the loopback network. The hub limits callers by their address.
	Address string
	// Server is set for a machine with all roles, which the hub knows as a custom one.
	Server bool
}

// identity is the same for a machine each time.
func (m Machine) identity() registration.Identity {
	hash := func(of string) string {
		sum := sha256.Sum256([]byte(of + " " + m.Name))
		return hex.EncodeToString(sum[:])
	}
	return registration.Identity{ID: hash("id")[:32], Secret: hash("secret")}
}

// headers adds what the install script sends beside the identity.
type headers struct {
	machine Machine
	next    http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (h headers) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+h.machine.Token)
	if h.machine.Server {
		r.Header.Set("X-Cattle-Node-Name", h.machine.Name)
		r.Header.Set("X-Cattle-Address", h.machine.Address)
		for _, role := range []string{"Etcd", "Control-Plane", "Worker"} {
			r.Header.Set("X-Cattle-Role-"+role, "true")
		}
	}
	return h.next.RoundTrip(r)
}

const (
	registrationDelay    = time.Second
	maxRegistrationDelay = 10 * time.Second
)

// register registers a machine, and tries again for as long as the hub asks for it.
func (h Hub) register(ctx context.Context, m Machine) (config.Connection, error) {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(h.CACerts)
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(m.Address)}}
	transport := &http.Transport{DialContext: dialer.DialContext, TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: headers{m, transport}}
	for failures := 1; ; failures++ {
		connection, err := registration.Register(ctx, client, h.URL, m.identity())
		var status *registration.StatusError
		if err == nil || errors.As(err, &status) && status.Permanent() {
			return connection, err
		}
		delay := retry.Delay(failures, registrationDelay, maxRegistrationDelay)
		if status != nil {
			delay = max(delay, status.RetryAfter)
		}
		if waitErr := retry.Sleep(ctx, delay); waitErr != nil {
			return connection, fmt.Errorf("%w (%w)", waitErr, err)
		}
	}
}
