package usertokens

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/identity/tokens"
	"github.com/drover-dev/drover/hub/identity/userauth"
	"github.com/drover-dev/drover/hub/testenv/fakeclient"
)

var now = time.Unix(1_800_000_000, 0).UTC()

// world is a Handler, and what it has to do with.
type world struct {
	*Handler
	client client.Client
	log    bytes.Buffer
}

func newWorld(t *testing.T) *world {
	t.Helper()
	scheme := fakeclient.Scheme(t, managementv3.AddToScheme, provisioningv1.AddToScheme)
	w := &world{client: fake.NewClientBuilder().WithScheme(scheme).
		WithStatusSubresource(&managementv3.Token{}).WithObjects(&managementv3.Cluster{
		ObjectMeta: metav1.ObjectMeta{Name: "c-m-a", UID: "u", Labels: map[string]string{
			rkev1.OwnerClusterNamespaceLabel: "fleet", rkev1.OwnerClusterNameLabel: "demo",
		}},
	}, &provisioningv1.Cluster{ObjectMeta: metav1.ObjectMeta{
		Namespace: "fleet", Name: "demo", Annotations: map[string]string{rkev1.ManagementClusterNameAnnotation: "c-m-a"},
	}}).Build()}
	w.Handler = NewHandler(Handler{
		// Whoever sends a name is known by it.
		Authenticator: authenticator.RequestFunc(func(r *http.Request) (*authenticator.Response, bool, error) {
			switch who := r.Header.Get("Test-User"); who {
			case "":
				return nil, false, nil
			case "busy":
				return nil, false, fmt.Errorf("reviewing: %w", userauth.ErrTooMany)
			case "away":
				return nil, false, fmt.Errorf("reviewing: %w", userauth.ErrUnavailable)
			case "holder":
				return &authenticator.Response{User: &user.DefaultInfo{Name: who}, Audiences: authenticator.Audiences{"c-m-a"}}, true, nil
			default:
				return &authenticator.Response{User: &user.DefaultInfo{
					Name: who, Groups: []string{"ops"},
					Extra: map[string][]string{"team": {"blue"}, "authentication.kubernetes.io/credential-id": {"X509SHA256=1"}},
				}}, true, nil
			}
		}),
		Allowed: func(_ context.Context, u user.Info, _ *managementv3.Cluster) (bool, error) {
			if u.GetName() == "unlucky" {
				return false, errors.New("no API")
			}
			return u.GetName() != "mallory", nil
		},
		Issue: func(u user.Info, cluster string, ttl time.Duration, _ string, lasting bool) (string, error) {
			return fmt.Sprintf("secret:%s:%s:%s:%s:%t:%v", u.GetName(), strings.Join(u.GetGroups(), ","), cluster, ttl, lasting, u.GetExtra()), nil
		},
		Client: w.client, Now: func() time.Time { return now },
		Logger: funcr.New(func(_, args string) { w.log.WriteString(args + "\n") }, funcr.Options{Verbosity: 9}),
	})
	return w
}

func (w *world) ask(who, body string) *httptest.ResponseRecorder {
	request := httptest.NewRequest(http.MethodPost, Path, strings.NewReader(body))
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Test-User", who)
	recorder := httptest.NewRecorder()
	w.ServeHTTP(recorder, request)
	return recorder
}

func TestTokens(t *testing.T) {
	for _, tc := range []struct {
		name, who, body string
		code            int
		// token and message are what the answer holds, expires how long from now on the token is good.
		token, message string
		expires        time.Duration
		lasting        bool
	}{
		{
			name: "by the management Cluster", who: "anna", body: `{"cluster":"c-m-a"}`, code: 200,
			token: "secret:anna:ops:c-m-a:15m0s:false:map[team:[blue]]", expires: 15 * time.Minute,
		},
		{
			name: "by the Cluster", who: "anna", body: `{"cluster":"fleet/demo","ttlSeconds":60}`, code: 200,
			token: "secret:anna:ops:c-m-a:1m0s:false:map[team:[blue]]", expires: time.Minute,
		},
		{
			name: "one that lasts", who: "anna", body: `{"cluster":"fleet/demo","ttlSeconds":86400,"lasting":true,"description":"ci"}`, code: 200,
			token: "secret:anna:ops:c-m-a:24h0m0s:true:map[team:[blue]]", expires: 24 * time.Hour, lasting: true,
		},
		{name: "nobody", body: `{"cluster":"c-m-a"}`, code: 401, message: "show a client certificate"},
		{name: "the hub's own token", who: "holder", body: `{"cluster":"c-m-a"}`, code: 401, message: "cannot be used to get others"},
		{name: "too many wrong ones", who: "busy", body: `{"cluster":"c-m-a"}`, code: 429, message: "too many"},
		{name: "the API is unreachable", who: "away", body: `{"cluster":"c-m-a"}`, code: 503, message: "does not answer"},
		{name: "no right", who: "mallory", body: `{"cluster":"fleet/demo"}`, code: 403,
			message: `there is no cluster fleet/demo that user "mallory" may reach`},
		{name: "no cluster", who: "anna", body: `{"cluster":"fleet/none"}`, code: 403,
			message: `there is no cluster fleet/none that user "anna" may reach`},
		{name: "no management Cluster", who: "anna", body: `{"cluster":"c-m-b"}`, code: 403, message: `there is no cluster c-m-b that user`},
		{name: "a name that is none", who: "anna", body: `{"cluster":"fleet/a b"}`, code: 400, message: "invalid name; write <namespace>/<name>"},
		{name: "nothing", who: "anna", body: `{}`, code: 400, message: "cluster is missing"},
		{name: "no JSON", who: "anna", body: `x`, code: 400, message: "decoding the request failed"},
		{name: "another field", who: "anna", body: `{"cluster":"c-m-a","ttl":1}`, code: 400, message: `unknown field "ttl"`},
		{name: "two requests", who: "anna", body: `{"cluster":"c-m-a"}{}`, code: 400, message: "unexpected data"},
		{name: "a short one for long", who: "anna", body: `{"cluster":"c-m-a","ttlSeconds":86400}`, code: 400,
			message: `ttlSeconds 86400 is not between 60 and 3600; longer-lived tokens need "lasting": true`},
		{name: "for ever", who: "anna", body: `{"cluster":"c-m-a","ttlSeconds":99999999,"lasting":true}`, code: 400,
			message: "ttlSeconds 99999999 is not between 60 and 7776000"},
		{name: "negative", who: "anna", body: `{"cluster":"c-m-a","ttlSeconds":-1}`, code: 400, message: "ttlSeconds -1"},
		{name: "a description of nothing", who: "anna", body: `{"cluster":"c-m-a","description":"x"}`, code: 400,
			message: "description requires"},
		{name: "a large one", who: "anna", body: `{"cluster":"` + strings.Repeat("x", maxBody) + `"}`, code: 413, message: "larger than"},
		{name: "a failure", who: "unlucky", body: `{"cluster":"c-m-a"}`, code: 500, message: "see its log"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t)
			got := w.ask(tc.who, tc.body)
			if got.Code != tc.code || !strings.Contains(got.Body.String(), jsonText(tc.message)) {
				t.Fatalf("got %d %s, want %d %s", got.Code, got.Body, tc.code, tc.message)
			}
			if tc.code == http.StatusTooManyRequests || tc.code == http.StatusServiceUnavailable {
				if got.Header().Get("Retry-After") == "" {
					t.Error("nobody is told when to come again")
				}
			}
			objects := w.tokens(t)
			if tc.token == "" {
				if len(objects) > 0 {
					t.Errorf("there are Tokens: %v", objects)
				}
				return
			}
			var answer Answer
			if err := json.Unmarshal(got.Body.Bytes(), &answer); err != nil {
				t.Fatal(err)
			}
			if answer.Token != tc.token || !answer.ExpiresAt.Equal(now.Add(tc.expires)) || (answer.Name != "") != tc.lasting ||
				(len(objects) == 1) != tc.lasting {
				t.Errorf("got %+v and %d Tokens", answer, len(objects))
			}
			if strings.Contains(w.log.String(), "secret:") {
				t.Errorf("the log holds the token: %s", w.log.String())
			}
		})
	}
}

// jsonText is a text as it stands in JSON.
func jsonText(text string) string {
	raw, _ := json.Marshal(text)
	return strings.Trim(string(raw), `"`)
}

func (w *world) tokens(t *testing.T) []managementv3.Token {
	t.Helper()
	var list managementv3.TokenList
	if err := w.client.List(t.Context(), &list); err != nil {
		t.Fatal(err)
	}
	return list.Items
}

// Of a persistent token the hub keeps whose it is and how to know it, and it goes with its cluster.
func TestPersistentToken(t *testing.T) {
	w := newWorld(t)
	got := w.ask("anna", `{"cluster":"c-m-a","ttlSeconds":3600,"lasting":true,"description":"ci"}`)
	var answer Answer
	if err := json.Unmarshal(got.Body.Bytes(), &answer); err != nil {
		t.Fatal(err)
	}
	objects := w.tokens(t)
	if len(objects) != 1 {
		t.Fatalf("there are %d Tokens", len(objects))
	}
	object := objects[0]
	want := managementv3.TokenSpec{
		ClusterName: "c-m-a", User: managementv3.TokenUser{Username: "anna", Groups: []string{"ops"}},
		ExpiresAt: metav1.NewTime(now.Add(time.Hour)), Hash: tokens.Hash(answer.Token), Description: "ci",
	}
	if diff := cmp.Diff(want, object.Spec); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if object.Name != answer.Name || len(object.OwnerReferences) != 1 || object.OwnerReferences[0].UID != "u" {
		t.Errorf("it is %+v", object.ObjectMeta)
	}
	if raw, _ := json.Marshal(object); bytes.Contains(raw, []byte("secret:")) {
		t.Errorf("the Token holds the token: %s", raw)
	}
}

// A page in somebody's browser can send what is not JSON on their behalf, with their certificate.
func TestRefusedBeforeAnythingIsRead(t *testing.T) {
	w := newWorld(t)
	for _, tc := range []struct {
		method, contentType string
		code                int
	}{
		{http.MethodPut, "application/json", http.StatusMethodNotAllowed},
		{http.MethodPost, "text/plain", http.StatusUnsupportedMediaType},
		{http.MethodPost, "", http.StatusUnsupportedMediaType},
	} {
		request := httptest.NewRequest(tc.method, Path, strings.NewReader(`{"cluster":"c-m-a"}`))
		request.Header.Set("Content-Type", tc.contentType)
		request.Header.Set("Test-User", "anna")
		recorder := httptest.NewRecorder()
		w.ServeHTTP(recorder, request)
		if recorder.Code != tc.code {
			t.Errorf("%s %s: got %d, want %d", tc.method, tc.contentType, recorder.Code, tc.code)
		}
	}
}

// Impersonation has no meaning here: who asks is who the token is for.
func TestImpersonationIsRefused(t *testing.T) {
	w := newWorld(t)
	request := httptest.NewRequest(http.MethodPost, Path, strings.NewReader(`{"cluster":"c-m-a"}`))
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Test-User", "anna")
	request.Header.Set("Impersonate-User", "bert")
	recorder := httptest.NewRecorder()
	w.ServeHTTP(recorder, request)
	if recorder.Code != http.StatusBadRequest || !strings.Contains(recorder.Body.String(), "Impersonate-User") {
		t.Errorf("got %d %s", recorder.Code, recorder.Body)
	}
}

func TestConcurrencyIsBounded(t *testing.T) {
	w := newWorld(t)
	take := func(user string) {
		t.Helper()
		if _, ok := w.slots.Acquire(user); !ok {
			t.Fatalf("no slot for %s", user)
		}
	}
	for range maxPerUser {
		take("mallory")
	}
	if got := w.ask("mallory", `{"cluster":"c-m-a"}`); got.Code != http.StatusTooManyRequests || got.Header().Get("Retry-After") != "1" {
		t.Errorf("a user with all slots of one user: got %d %s", got.Code, got.Body)
	}
	if got := w.ask("anna", `{"cluster":"c-m-a"}`); got.Code != http.StatusOK {
		t.Errorf("another user: got %d %s", got.Code, got.Body)
	}
	for i := range maxConcurrent - maxPerUser {
		take(fmt.Sprint("user", i/maxPerUser))
	}
	if got := w.ask("anna", `{"cluster":"c-m-a"}`); got.Code != http.StatusTooManyRequests || got.Header().Get("Retry-After") != "1" {
		t.Errorf("all slots in use: got %d %s", got.Code, got.Body)
	}
}

// TestBodyThatNeverArrives checks that clients who never send what they began to send keep nobody out.
func TestBodyThatNeverArrives(t *testing.T) {
	w := newWorld(t)
	var all sync.WaitGroup
	t.Cleanup(all.Wait)
	for range 2 * maxConcurrent {
		body, begin := io.Pipe()
		t.Cleanup(func() { _ = begin.Close() })
		all.Go(func() {
			request := httptest.NewRequest(http.MethodPost, Path, body)
			request.Header.Set("Content-Type", "application/json")
			w.ServeHTTP(httptest.NewRecorder(), request)
		})
		if _, err := begin.Write([]byte("{")); err != nil { // returns when the Handler waits for more
			t.Fatal(err)
		}
	}
	if answer := w.ask("anna", `{"cluster":"c-m-a"}`); answer.Code != http.StatusOK {
		t.Errorf("%d %s", answer.Code, answer.Body)
	}
}
