package plandelivery

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilcache "k8s.io/apimachinery/pkg/util/cache"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/gateway/secretcache"
	"github.com/drover-dev/drover/hub/identity/accounttokens"
	"github.com/drover-dev/drover/hub/util/response"
)

// identityReader knows ServiceAccounts and RKEBootstraps by namespace and name.
type identityReader struct {
	accounts   map[string]*corev1.ServiceAccount
	bootstraps map[string]*rkev1.RKEBootstrap
}

func (r identityReader) Get(_ context.Context, key client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	switch obj := obj.(type) {
	case *metav1.PartialObjectMetadata:
		if found := r.accounts[key.String()]; found != nil {
			found.ObjectMeta.DeepCopyInto(&obj.ObjectMeta)
			return nil
		}
	case *rkev1.RKEBootstrap:
		if found := r.bootstraps[key.String()]; found != nil {
			found.DeepCopyInto(obj)
			return nil
		}
	}
	return apierrors.NewNotFound(corev1.Resource("objects"), key.Name)
}

func (identityReader) List(context.Context, client.ObjectList, ...client.ListOption) error {
	return errors.New("not used")
}

// fixtureBootstrap is an RKEBootstrap of the namespace ns with the UID b-<name>.
func fixtureBootstrap(name string) *rkev1.RKEBootstrap {
	return &rkev1.RKEBootstrap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("b-" + name)}}
}

// planAccount is a ServiceAccount that says that it may use the plan of m1, with an owner where there is one.
func planAccount(name, uid string, owner *rkev1.RKEBootstrap) *corev1.ServiceAccount {
	account := &corev1.ServiceAccount{}
	account.Namespace, account.Name, account.UID = "ns", name, types.UID(uid)
	account.Labels = map[string]string{rkev1.ServiceAccountRoleLabel: rkev1.ServiceAccountRolePlan,
		rkev1.PlanSecretNameLabel: "m1-machine-plan"}
	if owner != nil {
		account.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(owner, rkev1.GroupVersion.WithKind("RKEBootstrap"))}
	}
	return account
}

func unknownToken(string) []*corev1.Secret { return nil }

func unverified(context.Context, string) (accounttokens.Claims, error) {
	return accounttokens.Claims{}, accounttokens.ErrUnverified
}

func TestAuthenticate(t *testing.T) {
	reviews := 0
	m1, m2 := fixtureBootstrap("m1"), fixtureBootstrap("m2")
	previous, other := fixtureBootstrap("m4"), fixtureBootstrap("m4")
	other.UID = "b-m4-of-today"
	elsewhere := planAccount("m5-machine-plan", "uid8", fixtureBootstrap("m5"))
	elsewhere.OwnerReferences[0].APIVersion = "apps/v1"
	accounts := map[string]*corev1.ServiceAccount{}
	for _, account := range []*corev1.ServiceAccount{
		planAccount("m1-machine-plan", "uid1", m1), planAccount("m2-machine-plan", "new", m2), planAccount("m1-machine-bootstrap", "uid3", m1),
		planAccount("labelled", "uid4", nil), planAccount("owned", "uid5", m1), planAccount("m3-machine-plan", "uid6", fixtureBootstrap("m3")),
		planAccount("m4-machine-plan", "uid7", previous), elsewhere,
	} {
		accounts["ns/"+account.Name] = account
	}
	bootstraps := map[string]*rkev1.RKEBootstrap{"ns/m1": m1, "ns/m2": m2, "ns/m4": other, "ns/m5": fixtureBootstrap("m5")}
	clock := testclock.NewFakePassiveClock(time.Unix(1000, 0))
	a := &Authenticator{
		reviewing: make(chan struct{}, 1),
		cached:    identityReader{accounts, bootstraps}, live: identityReader{}, issued: unknownToken,
		reviews: utilcache.NewLRUExpireCacheWithClock(100, clock),
		review: func(_ context.Context, token string) (authenticationv1.UserInfo, bool, error) {
			reviews++
			if token == "broken" {
				return authenticationv1.UserInfo{}, false, errors.New("the API is unreachable")
			}
			users := map[string]authenticationv1.UserInfo{
				"t1":    {Username: "system:serviceaccount:ns:m1-machine-plan", UID: "uid1"},
				"t2":    {Username: "system:serviceaccount:ns:m2-machine-plan", UID: "old"},
				"admin": {Username: "system:admin"},
				"odd":   {Username: "system:serviceaccount:ns"},

				"of the account for registering":              {Username: "system:serviceaccount:ns:m1-machine-bootstrap", UID: "uid3"},
				"of an account that is only labelled":         {Username: "system:serviceaccount:ns:labelled", UID: "uid4"},
				"of an account that is only owned":            {Username: "system:serviceaccount:ns:owned", UID: "uid5"},
				"of a machine that is gone":                   {Username: "system:serviceaccount:ns:m3-machine-plan", UID: "uid6"},
				"of an earlier machine of the same name":      {Username: "system:serviceaccount:ns:m4-machine-plan", UID: "uid7"},
				"of an account whose owner is something else": {Username: "system:serviceaccount:ns:m5-machine-plan", UID: "uid8"},
			}
			user, ok := users[token]
			return user, ok, nil
		},
	}
	for _, token := range []string{
		"", "nobody", "t2", "admin", "odd", "of the account for registering", "of an account that is only labelled", "of an account that is " +
			"only owned",
		"of a machine that is gone", "of an earlier machine of the same name", "of an account whose owner is something else",
	} {
		if m, err := a.Authenticate(t.Context(), token); !errors.Is(err, ErrUnauthorized) {
			t.Errorf("%q: %v, %v", token, m, err)
		}
	}
	m, err := a.Authenticate(t.Context(), "t1")
	if err != nil {
		t.Fatal(err)
	}
	if want := (types.NamespacedName{Namespace: "ns", Name: "m1-machine-plan"}); m.Account != want {
		t.Errorf("plan Secret %v, want %v", m.Account, want)
	}
	if err := m.owns("ns", "m2-machine-plan"); !apierrors.IsForbidden(err) {
		t.Errorf("another machine's Secret: %v", err)
	}
	planted := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "m1-machine-plan"}}
	if m.mayRead(planted) {
		t.Error("a Secret of the right name that was not made for the machine passes for its plan")
	}
	planted.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(m1, rkev1.GroupVersion.WithKind("RKEBootstrap"))}
	if !m.mayRead(planted) {
		t.Error("the machine may not read its plan")
	}

	before := reviews
	for range 10 {
		_, _ = a.Authenticate(t.Context(), "t1")
		_, _ = a.Authenticate(t.Context(), "nobody")
	}
	if reviews != before || !a.Recognizes("t1") || a.Recognizes("nobody") {
		t.Errorf("%d reviews for tokens that were just reviewed", reviews-before)
	}
	clock.SetTime(clock.Now().Add(reviewTTL + time.Nanosecond))
	if a.Recognizes("t1") {
		t.Error("a verdict lives too long")
	}
	if _, err := a.Authenticate(t.Context(), "t1"); err != nil || reviews != before+1 {
		t.Errorf("after the verdict's life: %v, %d reviews", err, reviews-before)
	}
	// The machine is deleted: no verdict helps.
	delete(accounts, "ns/m1-machine-plan")
	if _, err := a.Authenticate(t.Context(), "t1"); !errors.Is(err, ErrUnauthorized) {
		t.Errorf("a deleted machine: %v", err)
	}
	if _, err := a.Authenticate(t.Context(), "broken"); err == nil || errors.Is(err, ErrUnauthorized) {
		t.Errorf("the API is unreachable: %v", err)
	}
}

// TestAuthenticateIssued: a token that the hub itself has issued is not refused because the API server has not seen it yet.
func TestAuthenticateIssued(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m1 := fixtureBootstrap("m1")
		known := identityReader{map[string]*corev1.ServiceAccount{"ns/m1-machine-plan": planAccount("m1-machine-plan", "uid1", m1)},
			map[string]*rkev1.RKEBootstrap{"ns/m1": m1}}
		reviews := map[string]int{}
		a := &Authenticator{
			cached: known, live: identityReader{}, verify: unverified,
			issued: func(token string) []*corev1.Secret {
				if token == "foreign" {
					return nil
				}
				return []*corev1.Secret{{}}
			},
			reviews: utilcache.NewLRUExpireCache(100), reviewing: make(chan struct{}, 1),
			review: func(_ context.Context, token string) (authenticationv1.UserInfo, bool, error) {
				reviews[token]++
				user := authenticationv1.UserInfo{Username: "system:serviceaccount:ns:m1-machine-plan", UID: "uid1"}
				return user, token == "new" && reviews[token] == issuedReviews, nil
			},
		}
		if _, err := a.Authenticate(t.Context(), "new"); err != nil {
			t.Errorf("a token that the API server has seen late: %v", err)
		}
		for token, want := range map[string]int{"foreign": 1, "revoked": issuedReviews} {
			if _, err := a.Authenticate(t.Context(), token); !errors.Is(err, ErrUnauthorized) || reviews[token] != want {
				t.Errorf("%s: %v after %d reviews, want %d", token, err, reviews[token], want)
			}
		}
	})
}

// TestOwnReview: the API is asked about a token only if the hub cannot judge it by its Secret and its signature.
func TestOwnReview(t *testing.T) {
	now := time.Date(2026, 1, 20, 12, 0, 0, 0, time.UTC)
	plan := types.NamespacedName{Namespace: "ns", Name: "m1-machine-plan"}
	claims := accounttokens.Claims{Secret: types.NamespacedName{Namespace: "ns", Name: "m1-token"}, Account: plan, UID: "uid1"}
	for name, test := range map[string]struct {
		change   func(*corev1.Secret)
		unsigned bool
		want     int
	}{
		"a token in its Secret": {want: 0},
		"used a week ago":       {func(s *corev1.Secret) { s.Labels[secretcache.LastUsedLabel] = "2026-01-13" }, false, 1},
		"used some days ago":    {func(s *corev1.Secret) { s.Labels[secretcache.LastUsedLabel] = "2026-01-14" }, false, 0},
		"new, and not used yet": {func(s *corev1.Secret) {
			s.Labels, s.CreationTimestamp = nil, metav1.NewTime(now.Add(-time.Minute))
		}, false, 0},
		"old, and never used": {func(s *corev1.Secret) { s.Labels = nil }, false, 1},
		"a date that is none": {func(s *corev1.Secret) { s.Labels[secretcache.LastUsedLabel] = "yesterday" }, false, 1},
		"marked as invalid": {func(s *corev1.Secret) {
			s.Labels[secretcache.InvalidSinceLabel] = "2026-01-19"
		}, false, 1},
		"being deleted":                               {func(s *corev1.Secret) { s.DeletionTimestamp = &metav1.Time{Time: now} }, false, 1},
		"copied into another Secret":                  {func(s *corev1.Secret) { s.Name = "copy" }, false, 1},
		"copied into another namespace":               {func(s *corev1.Secret) { s.Namespace = "elsewhere" }, false, 1},
		"whoever writes Secrets, without a signature": {nil, true, 1},
	} {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "m1-token",
			Labels: map[string]string{secretcache.LastUsedLabel: "2026-01-20"}}}
		if test.change != nil {
			test.change(secret)
		}
		m1, reviews := fixtureBootstrap("m1"), 0
		a := NewAuthenticator(nil, nil, func(string) []*corev1.Secret { return []*corev1.Secret{secret} }, nil)
		a.cached = identityReader{map[string]*corev1.ServiceAccount{plan.String(): planAccount(plan.Name, "uid1", m1)},
			map[string]*rkev1.RKEBootstrap{"ns/m1": m1}}
		a.now = func() time.Time { return now }
		a.verify = func(context.Context, string) (accounttokens.Claims, error) { return claims, nil }
		if test.unsigned {
			a.verify = unverified
		}
		a.review = func(context.Context, string) (authenticationv1.UserInfo, bool, error) {
			reviews++
			return authenticationv1.UserInfo{Username: "system:serviceaccount:ns:m1-machine-plan", UID: "uid1"}, true, nil
		}
		if m, err := a.Authenticate(t.Context(), "token"); err != nil || m.Account != plan || reviews != test.want {
			t.Errorf("%s: %+v, %v, %d reviews, want %d", name, m, err, reviews, test.want)
		}
	}
}

// TestReviewTimeout: a request does not wait without end for an API that does not answer, nor for its turn.
func TestReviewTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := NewAuthenticator(nil, identityReader{}, unknownToken, nil)
		a.review = func(ctx context.Context, _ string) (authenticationv1.UserInfo, bool, error) {
			<-ctx.Done()
			return authenticationv1.UserInfo{}, false, ctx.Err()
		}
		begun := time.Now()
		var done sync.WaitGroup
		for i := range 2 * concurrentReviews {
			done.Go(func() {
				_, err := a.Authenticate(t.Context(), fmt.Sprint("token ", i))
				if !response.IsCode(err, http.StatusServiceUnavailable) {
					t.Errorf("%d: %v", i, err)
				}
			})
		}
		done.Wait()
		if took := time.Since(begun); took != reviewTimeout {
			t.Errorf("the requests ended after %s", took)
		}
	})
}

// TestConcurrentReviews: many machines that come back at once are asked about some at a time, and one that has gone again is not asked
// about.
func TestConcurrentReviews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var running, most, all int
		a := NewAuthenticator(nil, identityReader{}, unknownToken, nil)
		var mu sync.Mutex
		a.review = func(context.Context, string) (authenticationv1.UserInfo, bool, error) {
			mu.Lock()
			running, all = running+1, all+1
			most = max(most, running)
			mu.Unlock()
			time.Sleep(time.Millisecond)
			mu.Lock()
			running--
			mu.Unlock()
			return authenticationv1.UserInfo{}, false, nil
		}
		gone, cancel := context.WithCancel(t.Context())
		const machines = 10 * concurrentReviews
		var machinesGone int
		var done sync.WaitGroup
		for i := range machines {
			ctx := t.Context()
			if i%10 == 9 {
				ctx = gone
			}
			done.Go(func() {
				_, err := a.Authenticate(ctx, fmt.Sprint("token ", i))
				mu.Lock()
				defer mu.Unlock()
				if errors.Is(err, context.Canceled) {
					machinesGone++
				} else if !errors.Is(err, ErrUnauthorized) {
					t.Errorf("%d: %v", i, err)
				}
			})
		}
		synctest.Wait()
		cancel()
		done.Wait()
		if most != concurrentReviews {
			t.Errorf("%d reviews at once, want %d", most, concurrentReviews)
		}
		if machinesGone == 0 || all+machinesGone != machines {
			t.Errorf("%d reviews of %d machines, of which %d have gone", all, machines, machinesGone)
		}
	})
}
