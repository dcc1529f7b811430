package usertokens

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
)

// send sends a request for the tokens of a user, as the gateway mounts the Handler.
func (w *world) send(method, path, who string) *httptest.ResponseRecorder {
	mux := http.NewServeMux()
	mux.Handle(Path, w.Handler)
	mux.Handle(NamePath, w.Handler)
	request := httptest.NewRequest(method, path, nil)
	request.Header.Set("Test-User", who)
	recorder := httptest.NewRecorder()
	mux.ServeHTTP(recorder, request)
	return recorder
}

// TestOwnTokens: users see and revoke their persistent tokens, also those that have expired, and nobody else's.
func TestOwnTokens(t *testing.T) {
	w := newWorld(t)
	mine, other, expired := held("mine", "anna"), held("other", "bert"), held("expired", "anna")
	mine.Spec.Hash = strings.Repeat("a", 64)
	expired.Spec.ExpiresAt = metav1.NewTime(now.Add(-time.Hour))
	for _, token := range []*managementv3.Token{mine, other, expired} {
		if err := w.client.Create(t.Context(), token); err != nil {
			t.Fatal(err)
		}
	}
	var list managementv3.TokenList
	if got := w.send(http.MethodGet, Path, "anna"); got.Code != http.StatusOK || json.Unmarshal(got.Body.Bytes(), &list) != nil ||
		len(list.Items) != 2 || list.Items[0].Name != "mine" || list.Items[0].Spec.Hash != "" || list.Items[1].Name != "expired" {
		t.Errorf("%d: %+v", got.Code, list.Items)
	}
	for _, tc := range []struct {
		method, path, who string
		code, left        int
	}{
		{http.MethodGet, Path, "", http.StatusUnauthorized, 3},
		{http.MethodGet, Path, "holder", http.StatusUnauthorized, 3},
		{http.MethodDelete, Path + "/mine", "holder", http.StatusUnauthorized, 3},
		{http.MethodDelete, Path + "/mine", "bert", http.StatusNotFound, 3},
		{http.MethodDelete, Path + "/none", "anna", http.StatusNotFound, 3},
		{http.MethodDelete, Path, "anna", http.StatusMethodNotAllowed, 3},
		{http.MethodPost, Path + "/mine", "anna", http.StatusMethodNotAllowed, 3},
		{http.MethodDelete, Path + "/mine", "anna", http.StatusOK, 2},
		{http.MethodDelete, Path + "/mine", "anna", http.StatusNotFound, 2},
		{http.MethodDelete, Path + "/expired", "anna", http.StatusOK, 1},
	} {
		got := w.send(tc.method, tc.path, tc.who)
		if left := len(w.tokens(t)); got.Code != tc.code || left != tc.left {
			t.Errorf("%s %s by %q: %d %s, %d Tokens are left", tc.method, tc.path, tc.who, got.Code, got.Body, left)
		}
	}
	if log := w.log.String(); strings.Count(log, "has revoked a persistent token") != 2 {
		t.Errorf("the log has %s", log)
	}
}
