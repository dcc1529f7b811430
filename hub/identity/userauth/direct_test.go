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
