package doctor

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"golang.org/x/net/http/httpproxy"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/drover-dev/drover/agent/config"
)

const (
	// maxSkew is how far the clocks may be apart; certificates and leases suffer beyond.
	maxSkew = 30 * time.Second
	// expirySoon is how long before its end a certificate is worth a word.
	expirySoon = 30 * 24 * time.Hour
)

// hubConnection is what the connection info says about the hub.
type hubConnection struct {
	config.Connection
	rest *rest.Config
	url  *url.URL
}

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
		return nil, errors.New("the kubeconfig of the connection info cannot be read")
	}
	u, err := url.Parse(cfg.Host)
	if err != nil || u.Host == "" {
		return nil, errors.New("the kubeconfig of the connection info names no server")
	}
	return &hubConnection{connection, cfg, u}, nil
}

// checkHub asks the hub as the agent does: with its proxy, its CA and its token.
func checkHub(ctx context.Context, m Machine) []Result {
	h, err := m.hub()
	if h == nil {
		if err != nil {
			return nil // the configuration's check tells
		}
		return []Result{{"hub", Skipped, "this machine takes no plans from a hub", ""}}
	}
	results := authority(h.rest.CAData, m.Now())
	tlsConfig, err := rest.TLSConfigFor(h.rest)
	if err != nil {
		return append(results, Result{"hub", Problem, "the certificates of the connection info cannot be used: " + err.Error(), registerAgain})
	}
	client := &http.Client{
		Transport: &http.Transport{TLSClientConfig: tlsConfig, Proxy: m.proxy(), DisableKeepAlives: true, TLSHandshakeTimeout: timeout},
		// Whatever answers is the hub; a login page behind a redirect is not.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	started := m.Now()
	response, err := get(ctx, client, h.url.JoinPath("healthz").String(), "")
	if err != nil {
		return append(results, unreachable(h, err, m.Now()))
	}
	ended := m.Now()
	results = append(results, Result{"hub", OK, fmt.Sprintf("%s answers HTTP %d after %s", h.url.Redacted(), response.code, ended.Sub(started).Round(time.Millisecond)), ""})
	if response.certificate != nil {
		results = append(results, expiry("hub certificate", response.certificate, m.Now(), "renew the certificate of the hub"))
	}
	results = append(results, skew(response.date, started, ended))
	return append(results, credentials(ctx, client, h))
}

const registerAgain = "register the machine again: system-agent join"

// answer is what of an answer is looked at; its body never is.
type answer struct {
	code        int
	date        string
	certificate *x509.Certificate
}

func get(ctx context.Context, client *http.Client, url, token string) (answer, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return answer{}, err
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := client.Do(request)
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, 4<<10))
	a := answer{code: response.StatusCode, date: response.Header.Get("Date")}
	if response.TLS != nil && len(response.TLS.PeerCertificates) > 0 {
		a.certificate = response.TLS.PeerCertificates[0]
	}
	return a, nil
}

func unreachable(h *hubConnection, err error, now time.Time) Result {
	r := Result{Check: "hub", Verdict: Problem, Seen: fmt.Sprintf("%s: %v", h.url.Redacted(), innermost(err))}
	var unknown x509.UnknownAuthorityError
	var name x509.HostnameError
	var invalid x509.CertificateInvalidError
	switch {
	case errors.As(err, &unknown):
		r.Advice = "the hub's certificate is not signed by the CA that this machine has pinned: either something between answers for the hub, or its CA has changed; compare with <hub>/cacerts, then " + registerAgain
	case errors.As(err, &name):
		r.Advice = "the hub's certificate is for other names: correct the URL of the hub, or its certificate"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		r.Advice = "compare this machine's clock (" + now.UTC().Format(time.RFC3339) + ") with the time, then renew the certificate of the hub"
	default:
		r.Advice = "look at the name, the route, the firewall and the proxy; curl -v " + h.url.Redacted() + "/healthz shows more"
	}
	return r
}

// innermost takes the request's words away from an error; the URL is said already.
func innermost(err error) error {
	var failed *url.Error
	if errors.As(err, &failed) {
		return failed.Err
	}
	return err
}

// credentials asks whether the hub still takes the machine's token.
func credentials(ctx context.Context, client *http.Client, h *hubConnection) Result {
	if h.rest.BearerToken == "" {
		return Result{"hub credentials", Skipped, "the connection info holds no token", ""}
	}
	u := h.url.JoinPath("api/v1/namespaces", h.Namespace, "secrets")
	u.RawQuery = url.Values{"fieldSelector": {"metadata.name=" + h.SecretName}, "limit": {"1"}}.Encode()
	response, err := get(ctx, client, u.String(), h.rest.BearerToken)
	plan := h.Namespace + "/" + h.SecretName
	switch {
	case err != nil:
		return Result{"hub credentials", Warning, fmt.Sprintf("the plan Secret %s: %v", plan, innermost(err)), "try again"}
	case response.code == http.StatusOK:
		return Result{"hub credentials", OK, "the hub shows the plan Secret " + plan, ""}
	case response.code == http.StatusUnauthorized, response.code == http.StatusForbidden:
		return Result{"hub credentials", Problem, fmt.Sprintf("the hub refuses the machine's token for the plan Secret %s: HTTP %d", plan, response.code),
			"look whether the machine still exists in the hub, then " + registerAgain}
	}
	return Result{"hub credentials", Warning, fmt.Sprintf("the hub answers HTTP %d for the plan Secret %s", response.code, plan), "look at the hub"}
}

// skew compares clocks; the hub's was read somewhere between started and ended, and is told in whole seconds.
func skew(date string, started, ended time.Time) Result {
	told, err := http.ParseTime(date)
	if err != nil {
		return Result{"clock", Skipped, "the hub does not tell the time", ""}
	}
	apart := time.Duration(0)
	switch {
	case told.Add(time.Second).Before(started):
		apart = started.Sub(told.Add(time.Second))
	case told.After(ended):
		apart = ended.Sub(told)
	}
	word := "ahead of"
	if apart < 0 {
		word = "behind"
	}
	if apart.Abs() <= maxSkew {
		return Result{"clock", OK, fmt.Sprintf("within %s of the hub's", max(apart.Abs().Round(time.Second), time.Second)), ""}
	}
	return Result{"clock", Problem, fmt.Sprintf("%s %s the hub's clock", apart.Abs().Round(time.Second), word),
		"set the clock; chrony or systemd-timesyncd keeps it right (timedatectl shows whether one does)"}
}

func expiry(name string, certificate *x509.Certificate, now time.Time, advice string) Result {
	until := certificate.NotAfter.UTC().Format(time.DateOnly)
	switch left := certificate.NotAfter.Sub(now); {
	case left <= 0:
		return Result{name, Problem, "expired on " + until, advice}
	case now.Before(certificate.NotBefore):
		return Result{name, Problem, "is valid only from " + certificate.NotBefore.UTC().Format(time.RFC3339), "set this machine's clock, or the hub's"}
	case left < expirySoon:
		return Result{name, Warning, fmt.Sprintf("expires on %s, in %d days", until, left/(24*time.Hour)), advice}
	}
	return Result{name, OK, "valid until " + until, ""}
}

// authority looks at the CA certificates that the machine has pinned.
func authority(bundle []byte, now time.Time) []Result {
	if len(bundle) == 0 {
		return []Result{{"pinned CA", Warning, "none: any CA that this machine knows may vouch for the hub", "join with --ca-checksum"}}
	}
	var best *x509.Certificate
	for rest := bundle; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if certificate, err := x509.ParseCertificate(block.Bytes); err == nil && (best == nil || certificate.NotAfter.After(best.NotAfter)) {
			best = certificate
		}
	}
	if best == nil {
		return []Result{{"pinned CA", Problem, "the connection info holds no certificate that can be read", registerAgain}}
	}
	return []Result{expiry("pinned CA", best, now, registerAgain)}
}

// proxy is the agent's choice of a proxy for a request.
func (m Machine) proxy() func(*http.Request) (*url.URL, error) {
	choose := m.proxyConfig().ProxyFunc()
	return func(r *http.Request) (*url.URL, error) { return choose(r.URL) }
}

func (m Machine) proxyConfig() *httpproxy.Config {
	return &httpproxy.Config{HTTPProxy: m.variable("HTTP_PROXY", "http_proxy"), HTTPSProxy: m.variable("HTTPS_PROXY", "https_proxy"),
		NoProxy: m.variable("NO_PROXY", "no_proxy")}
}

func hostOnly(u *url.URL) string { return strings.ToLower(u.Hostname()) }
