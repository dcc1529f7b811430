package agent

import (
	"context"
	"net"
	"net/http"
	"slices"
	"time"
)

// calicoHealth is where Calico answers for its health.
const calicoHealth = "127.0.0.1:9099"

// answerForCalico answers as Calico would, where the cluster's configuration names it as the network plugin: pods of this node are
// connected.
func (a *agent) answerForCalico(ctx context.Context) {
	if !slices.Contains(a.settings.CNI, "calico") {
		return
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", calicoHealth)
	if err != nil {
		a.Log.Warn("Cannot answer for Calico", "error", err)
		return
	}
	mux := http.NewServeMux()
	for _, path := range []string{"/liveness", "/readiness"} {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	}
	h := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	context.AfterFunc(ctx, func() { _ = h.Close() })
	go func() { _ = h.Serve(l) }()
}
