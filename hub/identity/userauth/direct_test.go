package userauth

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/drover-dev/drover/hub/util/response"
)

// TestDirect: the user is the one of the credential, and a request for the rights of another is refused.
func TestDirect(t *testing.T) {
	users := authenticator.RequestFunc(func(*http.Request) (*authenticator.Response, bool, error) {
		return &authenticator.Response{User: &user.DefaultInfo{Name: "admin"}}, true, nil
	})
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	if who, err := Direct(users, r, logr.Discard(), ""); err != nil || who.GetName() != "admin" {
		t.Errorf("got %v, %v", who, err)
	}
	for _, header := range []string{"Impersonate-User", "Impersonate-Group", "Impersonate-Uid", "Impersonate-Extra-Scopes"} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set(header, "viewer")
		var refused *response.Error
		if who, err := Direct(users, r, logr.Discard(), ""); !errors.As(err, &refused) || refused.Code != http.StatusBadRequest ||
			!strings.Contains(refused.Error(), header) {
			t.Errorf("%s: got %v, %v", header, who, err)
		}
	}
}

// TestConnectionKey: a user's connections are counted for all clusters together, those of the hub's controllers for each cluster.
func TestConnectionKey(t *testing.T) {
	jane, hub := &user.DefaultInfo{Name: "jane"}, &user.DefaultInfo{Name: HubUser}
	one, other := []string{"c-m-1"}, []string{"c-m-2"}
	if connectionKey(jane, one) != connectionKey(jane, other) || connectionKey(jane, one) != connectionKey(jane, nil) {
		t.Error("a user may have more connections with one token for each cluster")
	}
	keys := map[string]bool{connectionKey(jane, nil): true, connectionKey(hub, nil): true, connectionKey(hub, one): true,
		connectionKey(hub, other): true}
	if keys[""] || len(keys) != 4 {
		t.Errorf("connections are not counted, or with those of others: %v", keys)
	}
}
