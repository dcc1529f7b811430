//go:build e2e

package chart

import (
	"context"
	"crypto/tls"
	"net/http"
	"testing"
	"time"
)

// longestGap is how long the gateway may be out of reach while one replica is replaced after the other.
const longestGap = 3 * time.Second

// watchGateway asks the gateway again and again, each time with a new connection. The returned function ends that, prints the longest time
// between two answers, and fails the test if it is too long.
func (m *management) watchGateway(t *testing.T) (report func()) {
	t.Helper()
	// Whether the certificate is good is the matter of the machines.
	client := &http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{
		DialContext: shared.Dial, DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, // health only
	}}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	var asked, failed int
	var longest time.Duration
	go func() {
		defer close(done)
		for last := time.Now(); ctx.Err() == nil; time.Sleep(50 * time.Millisecond) {
			asked++
			response, err := client.Get(m.url() + "/healthz")
			if err == nil {
				_ = response.Body.Close()
			}
			if err != nil || response.StatusCode != http.StatusOK {
				failed++
				continue
			}
			longest, last = max(longest, time.Since(last)), time.Now()
		}
	}()
	return func() {
		t.Helper()
		cancel()
		<-done
		t.Logf("the gateway was asked %d times and failed %d times; the longest time between two answers was %.2f s", asked, failed,
			longest.Seconds())
		if longest > longestGap {
			t.Errorf("the gateway did not answer for %.2f s", longest.Seconds())
		}
	}
}
