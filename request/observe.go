package request

// Outstanding reports whether the user still has to wait for the operation: it is active,
// or complete with nobody having observed it, and was not freed. Lock held.
func (o *Object) Outstanding() bool {
	return (o.state == Active || o.state == Complete) && !o.orphan
}

// About wraps err with what the operation is about. Lock held.
func (o *Object) About(err error) error { return o.op.Describe(err) }
