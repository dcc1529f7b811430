package gateway

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/ratelimit"
)

// accountReader knows ServiceAccounts.
type accountReader map[string]*corev1.ServiceAccount

func (r accountReader) Get(_ context.Context, key client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	found, ok := r[key.String()]
	if !ok {
		return apierrors.NewNotFound(corev1.Resource("serviceaccounts"), key.Name)
	}
	found.DeepCopyInto(obj.(*corev1.ServiceAccount))
	return nil
}

func (accountReader) List(context.Context, client.ObjectList, ...client.ListOption) error {
	return errors.New("not used")
}

func planAccount(name, uid, role, secret string) *corev1.ServiceAccount {
	account := &corev1.ServiceAccount{}
	account.Namespace, account.Name, account.UID = "ns", name, types.UID(uid)
	account.Labels = map[string]string{rkev1.ServiceAccountRoleLabel: role, rkev1.PlanSecretNameLabel: secret}
	return account
}

func TestAuthenticate(t *testing.T) {
	now := time.Unix(1000, 0)
	reviews := 0
	accounts := accountReader{
		"ns/m1":  planAccount("m1", "uid1", "plan", "m1-plan"),
		"ns/m2":  planAccount("m2", "new", "plan", "m2-plan"),
		"ns/bs":  planAccount("bs", "uid3", "bootstrap", "bs-plan"),
		"ns/any": planAccount("any", "uid4", "plan", ""),
	}
	a := &machineAuthenticator{
		accounts: accounts, live: accountReader{}, now: func() time.Time { return now }, reviews: map[[32]byte]verdict{},
		review: func(_ context.Context, token string) (authenticationv1.UserInfo, bool, error) {
			reviews++
			if token == "broken" {
				return authenticationv1.UserInfo{}, false, errors.New("the API is away")
			}
			users := map[string]authenticationv1.UserInfo{
				"t1":    {Username: "system:serviceaccount:ns:m1", UID: "uid1"},
				"t2":    {Username: "system:serviceaccount:ns:m2", UID: "old"},
				"tbs":   {Username: "system:serviceaccount:ns:bs", UID: "uid3"},
				"tany":  {Username: "system:serviceaccount:ns:any", UID: "uid4"},
				"admin": {Username: "system:admin"},
				"odd":   {Username: "system:serviceaccount:ns"},
			}
			user, ok := users[token]
			return user, ok, nil
		},
	}
	for _, token := range []string{"", "nobody", "t2", "tbs", "tany", "admin", "odd"} {
		if m, err := a.authenticate(t.Context(), token); !errors.Is(err, errUnauthorized) {
			t.Errorf("%q: %v, %v", token, m, err)
		}
	}
	m, err := a.authenticate(t.Context(), "t1")
	must(t, err)
	if want := (types.NamespacedName{Namespace: "ns", Name: "m1-plan"}); m.plan != want {
		t.Errorf("plan Secret %v, want %v", m.plan, want)
	}
	if err := m.owns("ns", "m2-plan"); !apierrors.IsForbidden(err) {
		t.Errorf("another machine's Secret: %v", err)
	}

	before := reviews
	for range 10 {
		_, _ = a.authenticate(t.Context(), "t1")
		_, _ = a.authenticate(t.Context(), "nobody")
	}
	if reviews != before || !a.known("t1") || a.known("nobody") {
		t.Errorf("%d reviews for tokens that were just reviewed", reviews-before)
	}
	now = now.Add(reviewTTL)
	if a.known("t1") {
		t.Error("a verdict lives too long")
	}
	if _, err := a.authenticate(t.Context(), "t1"); err != nil || reviews != before+1 {
		t.Errorf("after the verdict's life: %v, %d reviews", err, reviews-before)
	}
	// The machine is deleted: no verdict helps.
	delete(accounts, "ns/m1")
	if _, err := a.authenticate(t.Context(), "t1"); !errors.Is(err, errUnauthorized) {
		t.Errorf("a deleted machine: %v", err)
	}
	if _, err := a.authenticate(t.Context(), "broken"); err == nil || errors.Is(err, errUnauthorized) {
		t.Errorf("the API is away: %v", err)
	}
}

func TestWrongCredentialsWait(t *testing.T) {
	reviews := 0
	s := &Server{log: logr.Discard(), failures: ratelimit.New(1, 3), machines: &machineAuthenticator{
		now: time.Now, reviews: map[[32]byte]verdict{},
		review: func(context.Context, string) (authenticationv1.UserInfo, bool, error) {
			reviews++
			return authenticationv1.UserInfo{}, false, nil
		},
	}}
	handler := s.asMachine(func(http.ResponseWriter, *http.Request, *machine) { t.Error("let through") })
	var codes []int
	for i := range 5 {
		w := httptest.NewRecorder()
		r := httptest.NewRequest("GET", "/version", nil)
		r.Header.Set("Authorization", "Bearer wrong"+string(rune('a'+i)))
		handler(w, r)
		codes = append(codes, w.Code)
	}
	if codes[0] != 401 || codes[2] != 401 || codes[4] != 429 || reviews != 3 {
		t.Errorf("answers %v after %d reviews", codes, reviews)
	}
}
