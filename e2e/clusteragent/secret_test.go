package clusteragent

import (
	"io"
	"net/http"
	"sync"
)

// secretAPI holds the one Secret of the agent, whatever is in it.
type secretAPI struct {
	mu  sync.Mutex
	raw []byte
}

func (a *secretAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	if r.Method != http.MethodGet {
		a.raw, _ = io.ReadAll(r.Body)
	}
	if a.raw == nil {
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`)
		return
	}
	_, _ = w.Write(a.raw)
}
