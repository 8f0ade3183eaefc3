package registry

import "context"

type plugins []Admission

func newAdmission(Options) Admission { return plugins(nil) }

func (p plugins) Mutate(ctx context.Context, a Attributes) error {
	for _, x := range p {
		if err := x.Mutate(ctx, a); err != nil {
			return err
		}
	}
	return nil
}

func (p plugins) Validate(ctx context.Context, a Attributes) error {
	for _, x := range p {
		if err := x.Validate(ctx, a); err != nil {
			return err
		}
	}
	return nil
}
