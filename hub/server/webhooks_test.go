package server

import (
	"slices"
	"testing"

	"github.com/drover-dev/drover/hub/server/settings"
)

// TestWebhookServices: in a cluster, conversion has a Service with all replicas, since one that starts may need its own, and everything
// else has one with the replicas that are ready. The certificate is for both.
func TestWebhookServices(t *testing.T) {
	target, hosts, err := webhookTarget(Options{Settings: settings.Settings{SystemNamespace: "ns"}})
	if err != nil || target.Service.Name != "drover-admission" || target.Service.Namespace != "ns" {
		t.Errorf("admission is at %+v, %v", target.Service, err)
	}
	if c := conversion(target); c.Service.Name != "drover-webhook" || c.Service.Namespace != "ns" || *c.Service.Port != 443 {
		t.Errorf("conversion is at %+v", c.Service)
	}
	for _, host := range []string{"drover-admission.ns.svc", "drover-webhook.ns.svc"} {
		if !slices.Contains(hosts, host) {
			t.Errorf("the certificate is not for %s: %v", host, hosts)
		}
	}
	target, hosts, err = webhookTarget(Options{WebhookURL: "https://hub.example.com:9443"})
	if c := conversion(target); err != nil || *target.URL != *c.URL || c.Service != nil || !slices.Equal(hosts, []string{"hub.example.com"}) {
		t.Errorf("with a URL: %+v, %+v, %v, %v", target, c, hosts, err)
	}
}
