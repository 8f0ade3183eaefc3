package server

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"drydock.dev/drydock/apiserverlite/registry"
)

// settling decides, as the last step before a definition is written, whether its names are free. Upstream
// has controllers for that; here the status is right from the first moment.
type settling struct {
	registry.Admission
	s *Server
}

// Mutate refuses new objects of a definition that is going.
func (a settling) Mutate(ctx context.Context, at registry.Attributes) error {
	if at.Resource.Custom != nil && at.Operation == opCreate && at.Subresource == "" {
		if d := a.s.defined().byName[at.Resource.GR().String()]; d != nil && d.object.DeletionTimestamp != nil {
			return apierrors.NewForbidden(at.Resource.GR(), at.Name, errors.New("create not allowed while custom resource definition is terminating"))
		}
	}
	return a.Admission.Mutate(ctx, at)
}

func (a settling) Validate(ctx context.Context, at registry.Attributes) error {
	if err := a.Admission.Validate(ctx, at); err != nil {
		return err
	}
	if d, ok := at.Obj.(*apiextensionsv1.CustomResourceDefinition); ok && at.Resource.GR() == definitionResource {
		a.s.settle(d)
	}
	return nil
}

// settle sets the accepted names and the conditions.
func (s *Server) settle(d *apiextensionsv1.CustomResourceDefinition) {
	names, accepted := s.acceptNames(d)
	d.Status.AcceptedNames = names
	s.setCondition(d, accepted)
	switch {
	case registry.ConditionTrue(d, apiextensionsv1.Established):
	case accepted.Status == apiextensionsv1.ConditionTrue:
		s.setCondition(d, condition(apiextensionsv1.Established, true, "InitialNamesAccepted", "the initial names have been accepted"))
	default:
		s.setCondition(d, condition(apiextensionsv1.Established, false, "NotAccepted", "not all names are accepted"))
	}
}

func condition(kind apiextensionsv1.CustomResourceDefinitionConditionType, holds bool, reason, message string) apiextensionsv1.CustomResourceDefinitionCondition {
	c := apiextensionsv1.CustomResourceDefinitionCondition{Type: kind, Status: apiextensionsv1.ConditionFalse, Reason: reason, Message: message}
	if holds {
		c.Status = apiextensionsv1.ConditionTrue
	}
	return c
}

// setCondition keeps the time of a condition whose status does not change.
func (s *Server) setCondition(d *apiextensionsv1.CustomResourceDefinition, c apiextensionsv1.CustomResourceDefinitionCondition) {
	c.LastTransitionTime = metav1.NewTime(s.clock.Now()).Rfc3339Copy()
	i := slices.IndexFunc(d.Status.Conditions, func(o apiextensionsv1.CustomResourceDefinitionCondition) bool { return o.Type == c.Type })
	if i < 0 {
		d.Status.Conditions = append(d.Status.Conditions, c)
		return
	}
	if d.Status.Conditions[i].Status == c.Status {
		c.LastTransitionTime = d.Status.Conditions[i].LastTransitionTime
	}
	d.Status.Conditions[i] = c
}

// acceptNames compares the names with those that other definitions of the group have.
func (s *Server) acceptNames(d *apiextensionsv1.CustomResourceDefinition) (apiextensionsv1.CustomResourceDefinitionNames, apiextensionsv1.CustomResourceDefinitionCondition) {
	resources, kinds := map[string]bool{}, map[string]bool{}
	for _, o := range s.defined().byName {
		if o.object.Spec.Group != d.Spec.Group || o.object.Name == d.Name {
			continue
		}
		n := o.object.Status.AcceptedNames
		for _, name := range append([]string{n.Plural, n.Singular}, n.ShortNames...) {
			resources[name] = true
		}
		kinds[n.Kind], kinds[n.ListKind] = true, true
	}
	out, want := d.Status.AcceptedNames, d.Spec.Names
	result := condition(apiextensionsv1.NamesAccepted, true, "NoConflicts", "no conflicts found")
	take := func(to *string, name, reason string, used map[string]bool) {
		if name != *to && used[name] {
			result = condition(apiextensionsv1.NamesAccepted, false, reason, inUse(name).Error())
			return
		}
		*to = name
	}
	take(&out.Plural, want.Plural, "PluralConflict", resources)
	take(&out.Singular, want.Singular, "SingularConflict", resources)
	var taken []error
	for _, name := range want.ShortNames {
		if !slices.Contains(out.ShortNames, name) && resources[name] {
			taken = append(taken, inUse(name))
		}
	}
	if len(taken) > 0 {
		result = condition(apiextensionsv1.NamesAccepted, false, "ShortNamesConflict", errors.Join(taken...).Error())
	} else {
		out.ShortNames = want.ShortNames
	}
	take(&out.Kind, want.Kind, "KindConflict", kinds)
	take(&out.ListKind, want.ListKind, "ListKindConflict", kinds)
	out.Categories = want.Categories
	return out, result
}

func inUse(name string) error { return fmt.Errorf("%q is already in use", name) }

// announceEnd says of a definition that what it defines is going to be removed.
func (s *Server) announceEnd(o runtime.Object) {
	if d, ok := o.(*apiextensionsv1.CustomResourceDefinition); ok {
		s.setCondition(d, condition(apiextensionsv1.Terminating, true, "InstanceDeletionPending", "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon"))
	}
}
