//go:build e2e

package replicas

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/gorilla/websocket"
)

// upgraded has every replica carry a watch over WebSocket to every cluster. With tunnels to two of three replicas, one of them has to pass
// the connection on, as it does those of kubectl exec and port-forward.
func (e *env) upgraded(t *testing.T) {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(e.authorities)
	for _, h := range e.hubs {
		dialer := websocket.Dialer{
			HandshakeTimeout: 20 * time.Second, TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: "127.0.0.1"},
			NetDialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return (&net.Dialer{}).DialContext(ctx, "tcp", h.gateway)
			},
		}
		for _, a := range e.agents {
			url := "wss://127.0.0.1/k8s/clusters/" + a.cluster + "/api/v1/namespaces?watch=true&fieldSelector=metadata.name=default"
			until(t, time.Minute, "a watch of "+a.cluster+" over WebSocket through "+h.name, func() error {
				conn, response, err := dialer.DialContext(t.Context(), url, http.Header{
					"Authorization": {"Bearer " + e.token}, "Origin": {"https://127.0.0.1"}, // without an origin the API server answers 403
				})
				if err != nil {
					return fmt.Errorf("%w (%+v)", err, response)
				}
				defer conn.Close()
				_ = conn.SetReadDeadline(time.Now().Add(20 * time.Second))
				var event struct{ Type string }
				_, raw, err := conn.ReadMessage()
				if err == nil {
					err = json.Unmarshal(raw, &event)
				}
				if err == nil && event.Type != "ADDED" {
					err = fmt.Errorf("the first event is %q", event.Type)
				}
				return err
			})
		}
	}
}
