package server

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/drover-dev/drover/hub/testenv/loopback"
)

// TestWebhooksOutliveTheManager: a replica that drains answers the API server until it ends, and its port is free then.
func TestWebhooksOutliveTheManager(t *testing.T) {
	free, err := loopback.FreeAddress("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	address, err := net.ResolveTCPAddr("tcp", free)
	if err != nil {
		t.Fatal(err)
	}
	// Of this server only the certificate is used.
	source := httptest.NewTLSServer(nil)
	defer source.Close()
	webhooks := &persistentWebhooks{webhook.NewServer(webhook.Options{
		Host: address.IP.String(), Port: address.Port,
		TLSOpts: []func(*tls.Config){func(c *tls.Config) {
			c.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &source.TLS.Certificates[0], nil }
		}},
	}), newLifetime()}
	webhooks.Register("/called", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, "answered") }))

	managed, stopManager := context.WithCancel(t.Context())
	stopped := make(chan error, 1)
	go func() { stopped <- webhooks.Start(managed) }()
	for deadline := time.Now().Add(30 * time.Second); webhooks.StartedChecker()(nil) != nil; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not started: %v", webhooks.StartedChecker()(nil))
		}
	}
	stopManager()
	if err := <-stopped; err != nil {
		t.Fatal(err)
	}
	c := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	response, err := c.Get("https://" + address.String() + "/called")
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("while the replica drains: %v %v", response, err)
	}
	_ = response.Body.Close()

	webhooks.lifetime.end()
	again, err := net.Listen("tcp", address.String())
	if err != nil {
		t.Fatalf("after the end: %v", err)
	}
	_ = again.Close()
}
