package capicontract

import (
	"errors"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/drover-dev/drover/hub/testenv/fakeclient"
)

func TestAPIVersion(t *testing.T) {
	scheme := fakeclient.Scheme(t, apiextensionsv1.AddToScheme)
	for _, tt := range []struct {
		name   string
		labels map[string]string
		// want is the apiVersion, or part of the error's text.
		want string
		fail any
	}{
		{name: "both contracts", labels: map[string]string{"cluster.x-k8s.io/v1beta1": "v1alpha4_v1beta1", "cluster.x-k8s.io/v1beta2": "v1beta2"},
			want: "g.io/v1beta2"},
		{name: "the old contract only", labels: map[string]string{"cluster.x-k8s.io/v1beta1": "v1alpha4_v1beta1"}, want: "g.io/v1beta1"},
		{name: "versions in any order", labels: map[string]string{"cluster.x-k8s.io/v1beta2": "v1_v2beta1_v1beta2"}, want: "g.io/v1"},
		{name: "a kind of somebody else", labels: map[string]string{"app": "x"}, want: "cluster.x-k8s.io/v1beta2", fail: new(*NotSupportedError)},
		{name: "no such kind", want: "thingtemplates.g.io", fail: new(*NotInstalledError)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			builder := fake.NewClientBuilder().WithScheme(scheme)
			if tt.labels != nil {
				builder.WithObjects(&apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "thingtemplates.g.io",
					Labels: tt.labels}})
			}
			got, err := APIVersion(t.Context(), builder.Build(), schema.GroupKind{Group: "g.io", Kind: "ThingTemplate"})
			if tt.fail == nil {
				if err != nil || got != tt.want {
					t.Errorf("got %q and %v, want %q", got, err, tt.want)
				}
				return
			}
			if !errors.As(err, tt.fail) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want a %T with %q", err, tt.fail, tt.want)
			}
		})
	}
}
