package nodesim

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
)

// users are whom the first process of each container runs as, by the container's name. A
// container keeps what it was made with, though its volumes may give other groups since.
//
// There are no images: each is taken for one whose user is root, and that knows no users.
type users map[string]containerUser

type containerUser struct {
	id   string // of the container
	user *v1.ContainerUser
}

// put says in each status of a container that was made whom it runs as. Groups are those of the pod's volumes.
func (u users) put(pod *v1.Pod, list []v1.ContainerStatus, groups func() []int64) {
	for i := range list {
		s := &list[i]
		if s.ContainerID == "" {
			continue
		}
		if u[s.Name].id != s.ContainerID {
			u[s.Name] = containerUser{s.ContainerID, userOf(pod, s.Name, groups())}
		}
		s.User = u[s.Name].user // shared: nobody changes a status that was made
	}
}

// restore takes over what a kubelet before this one reported.
func (u users) restore(pod *v1.Pod) {
	for _, s := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses, pod.Status.EphemeralContainerStatuses) {
		if s.User != nil {
			u[s.Name] = containerUser{s.ContainerID, s.User}
		}
	}
}

// identity is what a container's spec and its pod's say of whom it runs as; nil leaves it to the image.
type identity struct {
	uid, gid *int64
	nonRoot  bool // it must not be root
}

func identityOf(pod *v1.Pod, own *v1.SecurityContext) identity {
	common := pod.Spec.SecurityContext
	if common == nil {
		common = &v1.PodSecurityContext{}
	}
	if own == nil {
		own = &v1.SecurityContext{}
	}
	nonRoot := or(own.RunAsNonRoot, common.RunAsNonRoot)
	return identity{or(own.RunAsUser, common.RunAsUser), or(own.RunAsGroup, common.RunAsGroup), nonRoot != nil && *nonRoot}
}

// userOf is whom a container that is made now runs as. Nobody knows for one that must
// not be root and leaves it to its image who else.
func userOf(pod *v1.Pod, name string, groups []int64) *v1.ContainerUser {
	is := identityOf(pod, securityOf(pod, name))
	if is.uid == nil && is.nonRoot {
		return nil
	}
	linux := &v1.LinuxContainerUser{UID: value(is.uid), GID: value(is.gid)}
	all := []int64{linux.GID}
	if sc := pod.Spec.SecurityContext; sc != nil {
		if sc.FSGroup != nil {
			all = append(all, *sc.FSGroup)
		}
		all = append(all, sc.SupplementalGroups...)
	}
	for _, g := range append(all, groups...) {
		if !slices.Contains(linux.SupplementalGroups, g) {
			linux.SupplementalGroups = append(linux.SupplementalGroups, g)
		}
	}
	return &v1.ContainerUser{Linux: linux}
}

// mayNotBeRoot is the error of a container that is to be root and must not.
func mayNotBeRoot(pod *v1.Pod, x *v1.Container) error {
	is := identityOf(pod, x.SecurityContext)
	if !is.nonRoot || is.uid == nil || *is.uid != 0 {
		return nil
	}
	return fmt.Errorf("container's runAsUser breaks non-root policy (pod: %q, container: %s)", fmt.Sprintf("%s_%s(%s)", pod.Name, pod.Namespace, pod.UID), x.Name)
}

// securityOf is a container's own security context.
func securityOf(pod *v1.Pod, name string) *v1.SecurityContext {
	for _, x := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		if x.Name == name {
			return x.SecurityContext
		}
	}
	for _, x := range pod.Spec.EphemeralContainers {
		if x.Name == name {
			return x.SecurityContext
		}
	}
	return nil
}

// or is what the container says, else what its pod says.
func or[T any](own, common *T) *T {
	if own != nil {
		return own
	}
	return common
}

func value(n *int64) int64 {
	if n == nil {
		return 0
	}
	return *n
}
