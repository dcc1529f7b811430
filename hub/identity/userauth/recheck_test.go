package userauth

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrlfake "sigs.k8s.io/controller-runtime/pkg/client/fake"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	"github.com/drover-dev/drover/hub/identity/tokens"
	"github.com/drover-dev/drover/hub/testenv/fakeclient"
)

// A persistent token of somebody who is no user any more opens nothing, and a group that its user has left counts no longer.
func TestRecheck(t *testing.T) {
	scheme := fakeclient.Scheme(t, managementv3.AddToScheme, corev1.AddToScheme)
	issuer := newIssuer(t)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "robot", UID: "u-1"}}
	const robot = "system:serviceaccount:team:robot"
	ago := func(d time.Duration) metav1.Time { return metav1.NewTime(time.Now().Add(-d)) }
	for name, test := range map[string]struct {
		user tokens.User
		// created is how long ago the Token was, confirmed how long ago its user has logged in; 0 for never, less for a time that is yet to come.
		created, confirmed time.Duration
		// groups are those of the Token.
		groups, want []string
		err          error
	}{
		"a person, new": {user: tokens.User{Username: "jane", Groups: []string{"ops"}}, groups: []string{"ops"}, want: []string{"ops"}},
		"a person who has not logged in for long": {user: tokens.User{Username: "jane"}, created: 8 * 24 * time.Hour, err: ErrSuspended},
		"a person who has logged in meanwhile": {user: tokens.User{Username: "jane"}, created: 80 * 24 * time.Hour,
			confirmed: 6 * 24 * time.Hour},
		"a person who has logged in while the clock was ahead": {user: tokens.User{Username: "jane"}, created: 80 * 24 * time.Hour,
			confirmed: -30 * 24 * time.Hour, err: ErrSuspended},
		"a person who has logged in at a replica with another clock": {user: tokens.User{Username: "jane"}, created: 80 * 24 * time.Hour,
			confirmed: -ConfirmationLeeway / 2},
		"a person who has left a group": {user: tokens.User{Username: "jane", Groups: []string{"ops", "admins"}},
			groups: []string{"ops"}, want: []string{"ops"}},
		"a group that was put into the Token later": {user: tokens.User{Username: "jane", Groups: []string{"ops"}}, groups: []string{"ops",
			"system:masters"}, want: []string{"ops"}},
		"a ServiceAccount":            {user: tokens.User{Username: robot, UID: "u-1"}, created: 80 * 24 * time.Hour},
		"a ServiceAccount made again": {user: tokens.User{Username: robot, UID: "u-0"}, err: errRevoked},
		"a ServiceAccount that is gone": {user: tokens.User{Username: "system:serviceaccount:team:gone", UID: "u-2"},
			err: errRevoked},
	} {
		t.Run(name, func(t *testing.T) {
			token, err := issuer.UserToken(test.user, "c-m-1", time.Hour, "t-1", true)
			if err != nil {
				t.Fatal(err)
			}
			object := tokenObject("t-1", token)
			object.CreationTimestamp = ago(test.created)
			object.Spec.User = managementv3.TokenUser{Username: test.user.Username, UID: test.user.UID, Groups: test.groups}
			if test.confirmed != 0 {
				at := ago(test.confirmed)
				object.Status.ConfirmedAt = &at
			}
			objects := ctrlfake.NewClientBuilder().WithScheme(scheme).WithObjects(object, account).Build()
			own := &ownTokens{verifier: issuer, objects: objects, live: objects, accounts: newAccounts(objects),
				used: func(*managementv3.Token) {}, now: time.Now}
			response, ok, err := own.AuthenticateToken(t.Context(), token)
			if !errors.Is(err, test.err) || ok != (test.err == nil) {
				t.Fatalf("got %v, %v; want %v", ok, err, test.err)
			}
			if ok {
				if diff := cmp.Diff(test.want, response.User.GetGroups()); diff != "" && len(test.want)+len(response.User.GetGroups()) > 0 {
					t.Errorf("groups (-want +got):\n%s", diff)
				}
			}
		})
	}
}
