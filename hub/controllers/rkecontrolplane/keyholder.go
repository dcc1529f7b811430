package rkecontrolplane

import (
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/plan/operation"
)

// keyHolderMark is the value of cluster.x-k8s.io/skip-remediation on the machine on which alone the new key of an EncryptionKeyRotation is.
const keyHolderMark = "rke.cattle.io/encryption-key"

// protectKeyHolder keeps health checks from replacing the machine on which alone a new key is, with which Secrets are written. The mark
// stays when the rotation ends there without success, until another one has written all Secrets with a key that all servers have, or a
// restore has replaced them.
func (s *scope) protectKeyHolder(m *machine, k *marks) {
	if holder, rotating := operation.KeyHolder(s.operation); rotating {
		k.setSkip(keyHolderMark, m.machine.Name == holder)
	}
}

// releaseKeyHolder takes the mark away once a restore replaces the data: no Secret is encrypted any more with the key that the machine
// alone has. It is marked as all others until the restore has ended.
func (s *scope) releaseKeyHolder(k *marks) {
	if k.skip == keyHolderMark && operation.RestoresData(s.operation) {
		k.skip = rkev1.RestoringAnnotation
	}
}
