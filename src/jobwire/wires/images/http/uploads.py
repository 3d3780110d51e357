"""The upload route (I-20): `PUT /v1/uploads/{image_id}`, authenticated by its token."""
