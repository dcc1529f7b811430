package doctor

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/drover-dev/drover/agent/config"
	"github.com/drover-dev/drover/agent/trust"
)

const (
	// maxClockSkew is the accepted difference between the clocks of machine and hub; beyond it, certificates and leases are at risk.
	maxClockSkew = 30 * time.Second
	// expiryWarning is how long before its expiry a certificate is a warning.
	expiryWarning = 30 * 24 * time.Hour
	// maxResponseBytes bounds what is read of a response, which is discarded.
	maxResponseBytes = 4 << 10

	registerAgain = "register the machine again with system-agent join"
)

// hubConnection is the connection info, decoded.
type hubConnection struct {
	config.Connection
	rest *rest.Config
	url  *url.URL
}

// hub returns the connection to the hub; nil without an error if the machine takes no plans from one.
func (m Machine) hub() (*hubConnection, error) {
	if m.ConfigErr != nil || !m.Config.RemoteEnabled {
		return nil, nil
	}
	connection, err := config.LoadConnection(m.Config.ConnectionInfoFile)
	if err != nil {
		return nil, err
	}
	cfg, err := clientcmd.RESTConfigFromKubeConfig([]byte(connection.KubeConfig))
	if err != nil {
		return nil, errors.New("the kubeconfig of the connection info is invalid") // the cause could quote it
	}
	u, err := url.Parse(cfg.Host)
	if err != nil || u.Host == "" {
		return nil, errors.New("the kubeconfig of the connection info has no server")
	}
	return &hubConnection{connection, cfg, u}, nil
}

// checkHub contacts the hub as the agent does: with its proxy, its CA and its token.
func checkHub(ctx context.Context, m Machine) []Result {
	h, err := m.hub()
	switch {
	case err != nil:
		return nil // checkConfig reports it
	case h == nil:
		return []Result{skipped("hub", "remoteEnabled is false")}
	}
	results := []Result{pinnedCA(h.rest.CAData, m.Now())}
	tlsConfig, err := rest.TLSConfigFor(h.rest)
	if err != nil {
		return append(results, problem("hub", "the certificates of the connection info are invalid: "+err.Error(), registerAgain))
	}
	client := &http.Client{
		Transport: &http.Transport{TLSClientConfig: tlsConfig, Proxy: m.proxyFunc(), DisableKeepAlives: true, TLSHandshakeTimeout: checkTimeout},
		// The hub does not redirect; a captive portal does.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	started := m.Now()
	response, err := get(ctx, client, h.url.JoinPath("healthz").String(), "")
	if err != nil {
		return append(results, unreachable(h, err, m.Now()))
	}
	ended := m.Now()
	took := ended.Sub(started).Round(time.Millisecond)
	results = append(results, ok("hub", fmt.Sprintf("%s: HTTP %d after %s", h.url.Redacted(), response.code, took)))
	if response.certificate != nil {
		results = append(results, expiry("hub certificate", response.certificate, m.Now(), "renew the certificate of the hub"))
	}
	return append(results, clockSkew(response.date, started, ended), credentials(ctx, client, h))
}

// hubResponse is what is checked of a response.
type hubResponse struct {
	code int
	// date is the header of that name.
	date string
	// certificate is that of the server; nil without TLS.
	certificate *x509.Certificate
}

func get(ctx context.Context, client *http.Client, url, token string) (hubResponse, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return hubResponse{}, err
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := client.Do(request)
	if err != nil {
		return hubResponse{}, err
	}
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, maxResponseBytes))
	r := hubResponse{code: response.StatusCode, date: response.Header.Get("Date")}
	if response.TLS != nil && len(response.TLS.PeerCertificates) > 0 {
		r.certificate = response.TLS.PeerCertificates[0]
	}
	return r, nil
}

func unreachable(h *hubConnection, err error, now time.Time) Result {
	var unknown x509.UnknownAuthorityError
	var name x509.HostnameError
	var invalid x509.CertificateInvalidError
	advice := "check name, route, firewall and proxy with curl -v " + h.url.Redacted() + "/healthz"
	switch {
	case errors.As(err, &unknown):
		advice = "the hub's certificate is not signed by the CA that this machine has pinned: a proxy intercepts TLS, or the " +
			"hub's CA has changed; compare with <hub>/cacerts, then " + registerAgain
	case errors.As(err, &name):
		advice = "the hub's certificate is for other names: correct the URL of the hub, or its certificate"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		advice = "check this machine's clock (" + now.UTC().Format(time.RFC3339) + "), then renew the certificate of the hub"
	}
	return problem("hub", fmt.Sprintf("%s: %v", h.url.Redacted(), withoutURL(err)), advice)
}

// withoutURL returns the cause of a *url.Error, which repeats the URL.
func withoutURL(err error) error {
	if failed, ok := errors.AsType[*url.Error](err); ok {
		return failed.Err
	}
	return err
}

// credentials checks whether the hub accepts the machine's token for its plan Secret.
func credentials(ctx context.Context, client *http.Client, h *hubConnection) Result {
	const name = "hub credentials"
	if h.rest.BearerToken == "" {
		return skipped(name, "the connection info has no token")
	}
	u := h.url.JoinPath("api/v1/namespaces", h.Namespace, "secrets")
	u.RawQuery = url.Values{"fieldSelector": {"metadata.name=" + h.SecretName}, "limit": {"1"}}.Encode()
	secret := "plan Secret " + h.Namespace + "/" + h.SecretName
	switch response, err := get(ctx, client, u.String(), h.rest.BearerToken); {
	case err != nil:
		return warning(name, fmt.Sprintf("%s: %v", secret, withoutURL(err)), "try again")
	case response.code == http.StatusOK:
		return ok(name, "the hub returns "+secret)
	case response.code == http.StatusUnauthorized, response.code == http.StatusForbidden:
		return problem(name, fmt.Sprintf("the hub refuses the machine's token for %s: HTTP %d", secret, response.code),
			"check that the Machine still exists in the hub, then "+registerAgain)
	default:
		return warning(name, fmt.Sprintf("%s: HTTP %d", secret, response.code), "check the hub")
	}
}

// clockSkew compares the machine's clock with the Date header of a response, in whole seconds, that was sent between started and ended.
func clockSkew(date string, started, ended time.Time) Result {
	hubTime, err := http.ParseTime(date)
	if err != nil {
		return skipped("clock", "the hub sent no date")
	}
	skew, direction := time.Duration(0), "ahead of"
	switch {
	case hubTime.Add(time.Second).Before(started):
		skew = started.Sub(hubTime.Add(time.Second))
	case hubTime.After(ended):
		skew, direction = hubTime.Sub(ended), "behind"
	}
	skew = skew.Round(time.Second)
	if skew <= maxClockSkew {
		return ok("clock", fmt.Sprintf("within %s of the hub's clock", max(skew, time.Second)))
	}
	return problem("clock", fmt.Sprintf("%s %s the hub's clock", skew, direction),
		"set the clock and keep it synchronized with chrony or systemd-timesyncd (see timedatectl)")
}

func expiry(name string, certificate *x509.Certificate, now time.Time, advice string) Result {
	date := certificate.NotAfter.UTC().Format(time.DateOnly)
	switch left := certificate.NotAfter.Sub(now); {
	case left <= 0:
		return problem(name, "expired on "+date, advice)
	case now.Before(certificate.NotBefore):
		return problem(name, "not valid before "+certificate.NotBefore.UTC().Format(time.RFC3339), "set the clock of this machine, or of the hub")
	case left < expiryWarning:
		return warning(name, fmt.Sprintf("expires on %s, in %d days", date, left/(24*time.Hour)), advice)
	}
	return ok(name, "valid until "+date)
}

// pinnedCA checks the CA certificate of the connection info that is valid longest.
func pinnedCA(bundle []byte, now time.Time) Result {
	const name = "pinned CA"
	if len(bundle) == 0 {
		return warning(name, "none: every CA that this machine trusts can sign a certificate for the hub", "join with --ca-checksum")
	}
	certificates, err := trust.ParseBundle(bundle)
	if err != nil {
		return problem(name, "the CA certificates of the connection info are invalid: "+err.Error(), registerAgain)
	}
	latest := slices.MaxFunc(certificates, func(a, b *x509.Certificate) int { return a.NotAfter.Compare(b.NotAfter) })
	return expiry(name, latest, now, registerAgain)
}
