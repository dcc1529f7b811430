package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Duration is a length of time such as 10m or 1h30m. The API server lets nothing in that cannot be read again.
//
// +kubebuilder:validation:Type=string
// +kubebuilder:validation:MaxLength=32
// +kubebuilder:validation:XValidation:rule="self.matches('^(0|([0-9]+([.][0-9]+)?(ns|us|ms|s|m|h))+)$')",message="must be a duration such as 10m or 1h30m"
type Duration struct {
	metav1.Duration `json:",inline"`
}
