package cli

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/drover-dev/drover/hub/testenv/fakeclient"
)

// TestMissingIdentity: nothing is copied over an identity that a hub has, and a copy that was interrupted is completed.
func TestMissingIdentity(t *testing.T) {
	secret := func(name, authority, serving string) client.Object {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "cattle-system", Name: name},
			Data: map[string][]byte{"ca.key": []byte(authority), "tls.crt": []byte(serving)}}
	}
	all := func(authority, serving string) []client.Object {
		var objects []client.Object
		for _, s := range identitySecrets {
			objects = append(objects, secret(s.name, authority, serving))
		}
		return objects
	}
	for name, tc := range map[string]struct {
		from, to []client.Object
		want     int
		err      string
	}{
		"an empty target":                  {from: all("a", "1"), want: 3},
		"a target that has it":             {from: all("a", "1"), to: all("a", "2"), want: 0},
		"interrupted":                      {from: all("a", "1"), to: all("a", "1")[:1], want: 2},
		"a hub has started there":          {from: all("a", "1"), to: all("b", "1"), err: "delete these Secrets"},
		"one of its keys is another":       {from: all("a", "1"), to: all("b", "1")[2:], err: "drover-token-key of namespace"},
		"no hub has started at the source": {to: all("a", "1"), err: "no hub has started here"},
	} {
		t.Run(name, func(t *testing.T) {
			reader := func(objects []client.Object) client.Reader {
				return fake.NewClientBuilder().WithScheme(fakeclient.Scheme(t, corev1.AddToScheme)).WithObjects(objects...).Build()
			}
			o := &copyIdentity{systemNamespace: "cattle-system", toNamespace: "cattle-system"}
			got, err := o.missing(context.Background(), reader(tc.from), reader(tc.to))
			if tc.err == "" && err != nil || tc.err != "" && (err == nil || !strings.Contains(err.Error(), tc.err)) {
				t.Fatalf("error %v, want %q", err, tc.err)
			}
			if len(got) != tc.want {
				t.Errorf("%d Secrets are to be copied, want %d", len(got), tc.want)
			}
		})
	}
}
