package apiproxy

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"io"
	"net/http"
	"os"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// client returns an HTTP client of the hub.
func (w *env) client(http2 bool) *http.Client {
	transport := w.hub.Client().Transport.(*http.Transport).Clone()
	transport.ForceAttemptHTTP2 = http2
	if !http2 {
		transport.TLSClientConfig.NextProtos = []string{"http/1.1"}
		transport.TLSNextProto = map[string]func(string, *tls.Conn) http.RoundTripper{}
	}
	w.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: 30 * time.Second,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

func (w *env) request(method, path, token string, headers ...string) *http.Request {
	w.t.Helper()
	r, err := http.NewRequest(method, w.hub.URL+path, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	return r
}

// answer is a response, with its Status if it has one.
type answer struct {
	*http.Response
	body   string
	status metav1.Status
}

func (w *env) send(r *http.Request) *answer {
	w.t.Helper()
	response, err := w.client(true).Do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	a := &answer{Response: response, body: string(body)}
	_ = json.Unmarshal(body, &a.status)
	return a
}

// events waits until the audit log has so many events of a stage, and returns them.
func (w *env) events(stage string, count int) []auditv1.Event {
	w.t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for {
		raw, err := os.ReadFile(w.audit)
		if err != nil {
			w.t.Fatal(err)
		}
		var events []auditv1.Event
		for line := range bytes.Lines(raw) {
			var event auditv1.Event
			if err := json.Unmarshal(line, &event); err == nil && string(event.Stage) == stage {
				events = append(events, event)
			}
		}
		if len(events) >= count {
			return events
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("%d events of stage %s, want %d:\n%s", len(events), stage, count, raw)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// echoedRequest is what echoRequest has received.
type echoedRequest struct {
	Method, URI, Host string
	Header            http.Header
	Body              string
}

func echoRequest(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Audit-Id", r.Header.Get("Audit-Id"))
	_ = json.NewEncoder(w).Encode(echoedRequest{r.Method, r.RequestURI, r.Host, r.Header, string(body)})
}

func (a *answer) echoed(t *testing.T) echoedRequest {
	t.Helper()
	var s echoedRequest
	if err := json.Unmarshal([]byte(a.body), &s); err != nil || a.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s", a.Status, a.body)
	}
	return s
}

func pemOf(certificate *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate.Raw})
}

func requestInfo(t *testing.T, r *http.Request) *request.RequestInfo {
	t.Helper()
	info, err := requestInfos.NewRequestInfo(r)
	if err != nil {
		t.Fatal(err)
	}
	return info
}
