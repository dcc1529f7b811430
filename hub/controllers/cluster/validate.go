package cluster

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/plan/release"
	"github.com/drover-dev/drover/hub/util/cause"
)

// fileSource is a Secret or ConfigMap with files.
type fileSource struct {
	kind, name string
}

// validate returns the problems that keep a spec from being passed on. Each message names the field. sources are the objects that exist.
func validate(cluster *provisioningv1.Cluster, sources map[fileSource]metav1.ObjectMeta) []*cause.Cause {
	var problems []*cause.Cause
	if err := release.Check(cluster.Spec.KubernetesVersion); err != nil {
		problems = append(problems, cause.New("UnknownVersion", "%s", capitalise(err.Error())))
	}
	if ref := cluster.Spec.RKEConfig.InfrastructureRef; ref != nil {
		if ref.Namespace != "" && ref.Namespace != cluster.Namespace {
			problems = append(problems, cause.New("InvalidInfrastructureRef",
				"spec.rkeConfig.infrastructureRef.namespace is %q: it must be the Cluster's own, %q", ref.Namespace, cluster.Namespace))
		}
	}
	for i, files := range cluster.Spec.RKEConfig.MachineSelectorFiles {
		for j, source := range files.FileSources {
			field := fmt.Sprintf("spec.rkeConfig.machineSelectorFiles[%d].fileSources[%d]", i, j)
			problems = append(problems, validateSource(cluster.Name, field+".secret.name", "Secret", source.Secret, sources)...)
			problems = append(problems, validateSource(cluster.Name, field+".configMap.name", "ConfigMap", source.ConfigMap, sources)...)
		}
	}
	return problems
}

func named(source *rkev1.K8sObjectFileSource) bool { return source != nil && source.Name != "" }

// validateSource checks that an object exists, unless it is optional, and is authorized for this cluster: otherwise a user who may write a
// Cluster could read every Secret of the namespace on a machine.
func validateSource(cluster, field, kind string, source *rkev1.K8sObjectFileSource,
	sources map[fileSource]metav1.ObjectMeta) []*cause.Cause {
	if !named(source) {
		return nil
	}
	meta, ok := sources[fileSource{kind, source.Name}]
	if !ok && source.Optional {
		return nil
	}
	if !ok {
		return []*cause.Cause{cause.New("FileSourceNotFound", "%s: %s %q does not exist in the namespace of the Cluster", field, kind,
			source.Name)}
	}
	if slices.Contains(rkev1.SplitList(meta.Annotations[rkev1.AuthorizedObjectAnnotation]), cluster) {
		return nil
	}
	return []*cause.Cause{cause.New("FileSourceNotAuthorized", "%s: %s %q is not authorized for this cluster; add %q to its annotation %s",
		field, kind, source.Name, cluster, rkev1.AuthorizedObjectAnnotation)}
}

func capitalise(s string) string {
	if s == "" || strings.HasPrefix(s, "spec.") {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}
