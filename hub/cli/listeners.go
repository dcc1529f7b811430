package cli

import (
	"errors"
	"fmt"
	"net"

	"github.com/drover-dev/drover/hub/api/provider"
)

// checkListeners reports a port that is in use before anything is started, and names the flag that changes it.
func (o *serveOptions) checkListeners() error {
	gateway, webhooks := o.hub.GatewayListen, o.hub.WebhookListen
	if !o.hub.Providers.Has(provider.ControlPlane) {
		gateway, webhooks = "0", "0"
	}
	for _, listener := range []struct{ flag, address string }{
		{"--listen", gateway},
		{"--webhook-listen", webhooks},
		{"--health-listen", o.hub.HealthListen},
		{"--metrics-listen", o.hub.MetricsListen},
		{"--pprof-listen", o.hub.PprofListen},
	} {
		if listener.address == "0" {
			continue
		}
		l, err := net.Listen("tcp", listener.address)
		if err != nil {
			if opErr, ok := errors.AsType[*net.OpError](err); ok {
				err = opErr.Err
			}
			return fmt.Errorf("cannot listen on %s: %w; choose another address with %s", listener.address, err, listener.flag)
		}
		_ = l.Close()
	}
	return nil
}
