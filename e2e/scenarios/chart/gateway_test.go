//go:build e2e

package chart

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/drover-dev/drover/e2e/scenarios/suite"
)

// How long the gateway, and a cluster through its tunnel, may be out of reach while one replica is replaced after the other.
const (
	longestGap       = 3 * time.Second
	longestTunnelGap = 5 * time.Second
)

// watchAccess asks the gateway, and the API server of the downstream cluster through the gateway and the tunnel, again and again. The
// returned function ends that, and fails the test if one of them did not answer for too long.
func (m *management) watchAccess(t *testing.T) (report func()) {
	t.Helper()
	config, err := shared.Config(m.userKubeconfig(t, "--static")) // nothing here can run the plugin within the lab
	suite.Must(t, err)
	trust, err := rest.TLSConfigFor(config)
	suite.Must(t, err)
	user, err := rest.HTTPWrappersForConfig(config, freshConnections(trust))
	suite.Must(t, err)
	// Whether the certificate is good is the matter of the machines.
	health := freshConnections(&tls.Config{InsecureSkipVerify: true})
	gateway := watchAnswers(t, "the gateway", longestGap, health, m.url()+"/healthz")
	tunnel := watchAnswers(t, "the cluster", longestTunnelGap, user, config.Host+"/version")
	return func() {
		t.Helper()
		gateway()
		tunnel()
	}
}

// freshConnections makes each request with a connection of its own.
func freshConnections(config *tls.Config) http.RoundTripper {
	return &http.Transport{DialContext: shared.Dial, DisableKeepAlives: true, TLSClientConfig: config}
}

// watchAnswers sends a GET again and again. The returned function ends that, prints the longest time between two answers, and fails the
// test if it is longer than most.
func watchAnswers(t *testing.T, what string, most time.Duration, transport http.RoundTripper, url string) (report func()) {
	t.Helper()
	client := &http.Client{Timeout: 2 * time.Second, Transport: transport}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	var asked, failed int
	var longest time.Duration
	var failure string
	go func() {
		defer close(done)
		last := time.Now()
		defer func() { longest = max(longest, time.Since(last)) }()
		for ; ctx.Err() == nil; time.Sleep(50 * time.Millisecond) {
			asked++
			response, err := client.Get(url)
			if err == nil {
				_ = response.Body.Close()
			}
			if err != nil || response.StatusCode != http.StatusOK {
				failed++
				if failure = fmt.Sprint(err); err == nil {
					failure = response.Status
				}
				continue
			}
			longest, last = max(longest, time.Since(last)), time.Now()
		}
	}()
	return func() {
		t.Helper()
		cancel()
		<-done
		t.Logf("%s was asked %d times and failed %d times; the longest time between two answers was %.2f s", what, asked, failed,
			longest.Seconds())
		if longest > most {
			t.Errorf("%s did not answer for %.2f s: %s", what, longest.Seconds(), failure)
		}
	}
}
