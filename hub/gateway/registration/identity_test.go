package registration

import (
	"context"
	"net/http"
	"testing"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/util/response"
)

// TestApprovalDuringChange: an administrator's approval is not lost when a controller changes the machine's objects while it registers, and
// lets in nobody when another machine registers at that moment.
func TestApprovalDuringChange(t *testing.T) {
	scheme := runtime.NewScheme()
	must(t, clusterv1.AddToScheme(scheme))
	must(t, rkev1.AddToScheme(scheme))
	for name, test := range map[string]struct {
		change             map[string]string
		wantCode           int
		wantHash, approval string
	}{
		"a controller's change": {change: map[string]string{"other": "x"}, wantHash: "hash"},
		"another machine registers": {change: map[string]string{rkev1.MachineSecretHashAnnotation: "others"},
			wantCode: http.StatusServiceUnavailable, wantHash: "others"},
		"another machine uses the approval": {change: map[string]string{rkev1.RegisterFromAnnotation: ""},
			wantCode: http.StatusServiceUnavailable},
		"another approval": {change: map[string]string{rkev1.RegisterFromAnnotation: "192.0.2.8"},
			wantCode: http.StatusServiceUnavailable, approval: "192.0.2.8"},
	} {
		t.Run(name, func(t *testing.T) {
			meta := metav1.ObjectMeta{Namespace: "fleet", Name: "one", UID: "1",
				Annotations: map[string]string{rkev1.RegisterFromAnnotation: "192.0.2.7"}}
			machine, bootstrap := &clusterv1.Machine{ObjectMeta: meta}, &rkev1.RKEBootstrap{ObjectMeta: meta}
			raced := map[string]bool{}
			reader := fake.NewClientBuilder().WithScheme(scheme).WithObjects(machine, bootstrap).WithInterceptorFuncs(interceptor.Funcs{
				Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
					kind := "Machine"
					current := client.Object(&clusterv1.Machine{})
					if _, ok := o.(*rkev1.RKEBootstrap); ok {
						kind, current = "RKEBootstrap", &rkev1.RKEBootstrap{}
					}
					if !raced[kind] {
						raced[kind] = true
						must(t, c.Get(ctx, client.ObjectKeyFromObject(o), current))
						annotations := current.GetAnnotations()
						for key, value := range test.change {
							if annotations[key] = value; value == "" {
								delete(annotations, key)
							}
						}
						current.SetAnnotations(annotations)
						must(t, c.Update(ctx, current))
					}
					return c.Patch(ctx, o, p, opts...)
				},
			}).Build()
			must(t, reader.Get(t.Context(), client.ObjectKeyFromObject(machine), machine))
			must(t, reader.Get(t.Context(), client.ObjectKeyFromObject(bootstrap), bootstrap))
			g := &Registrar{Options: Options{Client: reader, Live: reader, Logger: logr.Discard()}}
			err := g.consumeApproval(t.Context(), machine, bootstrap, &registration{SecretHash: "hash"}, "192.0.2.7")
			if (test.wantCode == 0) != (err == nil) || err != nil && !response.IsCode(err, test.wantCode) {
				t.Errorf("got %v", err)
			}
			must(t, reader.Get(t.Context(), client.ObjectKeyFromObject(machine), machine))
			must(t, reader.Get(t.Context(), client.ObjectKeyFromObject(bootstrap), bootstrap))
			if got := machine.Annotations[rkev1.RegisterFromAnnotation]; got != test.approval {
				t.Errorf("the approval is for %q now", got)
			}
			if got := bootstrap.Annotations[rkev1.MachineSecretHashAnnotation]; got != test.wantHash {
				t.Errorf("the machine's hash is %q", got)
			}
		})
	}
}
