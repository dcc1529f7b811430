// Package probe checks health endpoints of the machine as the kubelet does with httpGet probes of a pod, and counts the results against the
// thresholds of a plan. It keeps no state and reports to nobody.
package probe

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"time"

	"github.com/drover-dev/drover/plans"
)

const (
	// Defaults of a probe's timeoutSeconds, successThreshold and failureThreshold, as those of a pod.
	defaultTimeout          = time.Second
	defaultSuccessThreshold = 1
	defaultFailureThreshold = 3

	// maxRedirects, maxBodyBytes and userAgent are the kubelet's.
	maxRedirects = 10
	maxBodyBytes = 10 << 10
	userAgent    = "kube-probe/1.36"
)

// Certificates are the ends of the certificates that a check has seen, in UTC; zero for those that it has not.
type Certificates struct {
	// Server is that of the one that the server presented, also where it is not accepted.
	Server time.Time
	// Client is that of the client certificate.
	Client time.Time
}

// Check sends one GET request. It returns nil for a status of 2xx; any other status, a redirect to another host, and a failure to connect
// are errors. The URL, which may hold credentials, is never part of an error.
func Check(ctx context.Context, probe plans.Probe) (Certificates, error) {
	var seen Certificates
	timeout := defaultTimeout
	if probe.TimeoutSeconds > 0 {
		timeout = plans.Seconds(probe.TimeoutSeconds)
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	tlsConfig, err := tlsConfig(probe.HTTPGet)
	if err != nil {
		return seen, err
	}
	for _, pair := range tlsConfig.Certificates {
		seen.Client = endOf(pair.Leaf)
	}
	transport := &http.Transport{DisableKeepAlives: true, DisableCompression: true, TLSClientConfig: tlsConfig}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, CheckRedirect: sameHost}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, probe.HTTPGet.URL, nil)
	if err != nil {
		return seen, errors.New("invalid URL")
	}
	request.Header.Set("User-Agent", userAgent)
	request.Header.Set("Accept", "*/*")
	response, err := client.Do(request)
	if refused := (&tls.CertificateVerificationError{}); errors.As(err, &refused) && len(refused.UnverifiedCertificates) > 0 {
		seen.Server = endOf(refused.UnverifiedCertificates[0])
	}
	if withURL := (&url.Error{}); errors.As(err, &withURL) {
		return seen, withURL.Err
	}
	if err != nil {
		return seen, err
	}
	defer response.Body.Close()
	if response.TLS != nil && len(response.TLS.PeerCertificates) > 0 {
		seen.Server = endOf(response.TLS.PeerCertificates[0])
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, maxBodyBytes))
	if response.StatusCode < 200 || response.StatusCode > 299 {
		return seen, fmt.Errorf("got status %s", response.Status)
	}
	return seen, nil
}

// endOf is the end of a certificate; zero for none.
func endOf(certificate *x509.Certificate) time.Time {
	if certificate == nil {
		return time.Time{}
	}
	return certificate.NotAfter.UTC()
}

func sameHost(request *http.Request, via []*http.Request) error {
	if request.URL.Hostname() != via[0].URL.Hostname() {
		return fmt.Errorf("redirect to another host, %s", request.URL.Hostname())
	}
	if len(via) >= maxRedirects {
		return errors.New("too many redirects")
	}
	return nil
}

// tlsConfig reads the files for each check: certificates are rotated while the agent runs.
func tlsConfig(get plans.HTTPGetAction) (*tls.Config, error) {
	if get.Insecure {
		return &tls.Config{InsecureSkipVerify: true}, nil
	}
	config := &tls.Config{}
	if get.CACert != "" {
		pem, err := os.ReadFile(get.CACert)
		if err != nil {
			return nil, fmt.Errorf("reading CA certificate: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("reading CA certificate: no certificate in %s", get.CACert)
		}
	}
	if get.ClientCert != "" && get.ClientKey != "" {
		pair, err := tls.LoadX509KeyPair(get.ClientCert, get.ClientKey)
		if err != nil {
			return nil, fmt.Errorf("reading client certificate: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

// Record puts what a check has seen into a status. What it has not seen stays as it was: a server that does not answer has not changed its
// certificate.
func Record(status plans.ProbeStatus, seen Certificates) plans.ProbeStatus {
	if !seen.Server.IsZero() {
		status.ServerCertificateNotAfter = seen.Server
	}
	if !seen.Client.IsZero() {
		status.ClientCertificateNotAfter = seen.Client
	}
	return status
}

// Count adds the result of one check to a status. Counters stop at their threshold, so that the status of a steady probe does not change.
func Count(probe plans.Probe, status plans.ProbeStatus, healthy bool) plans.ProbeStatus {
	if healthy {
		threshold := cmp.Or(max(probe.SuccessThreshold, 0), defaultSuccessThreshold)
		status.FailureCount = 0
		status.SuccessCount = min(status.SuccessCount+1, threshold)
		status.Healthy = status.Healthy || status.SuccessCount >= threshold
		return status
	}
	threshold := cmp.Or(max(probe.FailureThreshold, 0), defaultFailureThreshold)
	status.SuccessCount = 0
	status.FailureCount = min(status.FailureCount+1, threshold)
	status.Healthy = status.Healthy && status.FailureCount < threshold
	return status
}
