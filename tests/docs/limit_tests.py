"""The tests of the bounds on docs/limits.md, by the first cell of their row."""

from typing import Final

TESTS: Final[dict[str, tuple[str, ...]]] = {
    "open connections, and requests whose client has left": (
        "gateway/test_connections.py::test_o15_connections_that_await_nothing_make_space",
        "gateway/test_accounts.py::test_o15_a_request_whose_client_has_left_belongs_to_its_key",
    ),
    "connected, within a head, or idle between requests": (
        "gateway/test_accounts.py::test_o15_who_has_most_connections_gives_the_oldest",
        "gateway/test_accounts.py::test_o15_a_connection_in_use_is_closed_last",
    ),
    "a request on a public route, or before its proof": (
        "gateway/test_accounts.py::test_o15_an_invented_proof_without_its_body_keeps_nobody_out",
        "gateway/test_accounts.py::test_o15_a_request_through_a_proxy_belongs_to_the_address_it_came_from",
    ),
    "an idle connection of one of `gateway.proxies`": (
        "gateway/test_accounts.py::test_o15_idle_connections_of_a_proxy_are_kept",
        "gateway/test_accounts.py::test_o15_idle_connections_of_a_proxy_are_bounded",
    ),
    "a request that has proved itself": (
        "gateway/test_accounts.py::test_o15_one_key_leaves_a_quarter_and_gives_way",
        "gateway/test_accounts.py::test_o15_keys_of_one_tenant_share_its_part",
        "gateway/test_accounts.py::test_o15_a_wait_that_gives_way_is_answered",
    ),
    "a request of a key that is revoked": (
        "gateway/test_accounts.py::test_o06_the_requests_of_a_revoked_key_are_ended",
    ),
    "the client has closed its side, no response has begun": (
        "gateway/test_accounts.py::test_o15_a_half_closed_client_that_is_not_answered_is_reset",
    ),
    "accounts": ("gateway/test_accounts.py::test_o15_keys_without_a_request_are_forgotten",),
    "one read of a socket": ("gateway/test_attacks.py::test_o06_a_flood_of_requests_is_not_read",),
    "request line and headers": (
        "gateway/test_limits.py::test_huge_headers_are_431",
        "gateway/test_limits.py::test_a_huge_path_is_431",
    ),
    "digits of a `Content-Length`": (
        "gateway/test_malformed_requests.py::test_ambiguous_requests_are_400",
    ),
    "chunk sizes, extensions, trailers": (
        "gateway/test_attacks.py::test_o06_endless_bytes_around_a_body_are_431",
        "gateway/test_malformed_requests.py::test_trailers_are_counted",
    ),
    "line ends before a request": ("gateway/test_attacks.py::test_o06_endless_line_ends_are_431",),
    "body of the request that is being answered": (
        "gateway/test_limits.py::test_a_chunked_body_is_counted",
        "gateway/test_uploads.py::test_o06_a_route_that_does_not_read_pauses_its_client",
    ),
    "queued (pipelined) requests": (
        "gateway/test_attacks.py::test_o06_queued_requests_are_bounded",
        "gateway/test_attacks.py::test_o06_requests_behind_a_stream_are_bounded",
    ),
    "bodies of queued requests": (
        "gateway/test_attacks.py::test_o09_queued_bodies_arrive_complete",
    ),
    "a body that a route reads in parts (`request.chunks`)": (
        "gateway/test_uploads.py::test_o06_a_large_body_passes_with_flat_memory",
    ),
    "the body that a verifier reads (`request.buffered_body`)": (
        "gateway/test_self_authenticated.py::test_o06_a_verifier_never_reads_more_than_the_limit",
        "systems/predictions/test_hooks.py::test_o15_a_webhook_without_a_signature_is_refused_unread",
        "systems/predictions/test_hooks.py::test_o15_little_is_read_before_a_signature_is_checked",
    ),
    "bodies in memory": (
        "gateway/test_body_budget.py::test_o15_all_bodies_have_one_budget",
        "stories/test_memory.py::test_o15_a_gateway_stays_within_the_memory_of_the_manifests",
        "gateway/test_body_budget.py::test_o15_the_bodies_of_one_key_have_a_share_of_the_budget",
        "gateway/test_body_budget.py::test_o15_senders_without_a_proof_share_one_part",
    ),
    "the rest of a body after its response": (
        "gateway/test_limits.py::test_an_unread_body_is_not_received_forever",
        "gateway/test_uploads.py::test_o06_a_small_body_that_was_refused_keeps_its_connection",
    ),
    "bytes after the last request or a refused head": (
        "gateway/test_uploads.py::test_o06_a_refused_client_cannot_send_forever",
        "gateway/test_limits.py::test_headers_without_an_end_are_cut_off",
    ),
    "response that is being written": (
        "gateway/test_attacks.py::test_o06_a_client_that_does_not_read_its_response_is_disconnected",
    ),
    "responses above 64 KiB that are not read": (
        "gateway/test_attacks.py::test_o15_responses_that_are_not_read_have_one_budget",
    ),
    "connected, nothing sent": ("gateway/test_limits.py::test_an_idle_connection_is_closed",),
    "within the head of a request": (
        "gateway/test_limits.py::test_headers_that_never_end_are_408",
    ),
    "within a body": (
        "gateway/test_attacks.py::test_o06_a_body_that_stops_is_408",
        "gateway/test_attacks.py::test_o06_a_body_that_trickles_after_a_quick_start_is_408",
    ),
    "refused, or last response sent": (
        "gateway/test_uploads.py::test_o06_a_refused_client_cannot_send_forever",
    ),
    "the response is not read": (
        "gateway/test_attacks.py::test_o06_a_client_that_does_not_read_its_response_is_disconnected",
    ),
    "nothing acknowledged": (
        "gateway/test_malformed_requests.py::test_unacknowledged_data_ends_the_connection",
    ),
    "answered, no further request (line ends do not count)": (
        "gateway/test_attacks.py::test_o06_an_idle_connection_is_closed_after_a_stray_line_end",
    ),
    "`Prefer: wait`": (
        "contracts/test_jobs_http_read.py::test_o15_a_wait_is_bounded",
        "gateway/test_accounts.py::test_o15_a_wait_ends_when_its_client_leaves",
    ),
    "event stream, buffer full": (
        "gateway/test_sse_connections.py::test_a_client_that_does_not_read_is_dropped_alone",
    ),
    "event stream, no events": (
        "gateway/test_malformed_requests.py::test_a_vanished_client_is_found_by_the_heartbeat",
    ),
    "headers that may occur once": (
        "gateway/test_malformed_requests.py::test_duplicate_headers_are_refused",
        "gateway/test_malformed_requests.py::test_http_11_has_one_host",
    ),
    "path segments": ("gateway/test_limits.py::test_o15_a_path_of_many_segments_is_not_found",),
    "query parameters": (
        "gateway/test_route.py::test_a_query_of_too_many_parameters_is_not_parsed",
    ),
    "`Last-Event-ID`, `X-Request-ID`": (
        "gateway/test_sse_connections.py::test_an_invalid_event_id_is_400",
        "gateway/test_problems.py::test_a_hostile_request_id_is_replaced",
    ),
    "`Prefer`, cursors, stream tokens, `traceparent`": (
        "gateway/test_limits.py::test_o15_headers_of_any_length_are_read_in_one_pass",
        "contracts/test_jobs_http_read.py::test_j14_an_invalid_query_names_the_parameter",
        "gateway/test_tokens.py::test_a_modified_token_is_refused",
    ),
    "`Origin`, `Access-Control-Request-Method`": (
        "gateway/test_cors.py::test_o06_another_origin_is_not_allowed",
    ),
    "`If-None-Match`, `Accept-Encoding`": (
        "gateway/test_static_files.py::test_o09_a_file_that_the_browser_has_is_not_sent_again",
        "gateway/test_static_files.py::test_o09_a_text_is_compressed_for_a_browser_that_accepts_it",
    ),
    "files of a page": ("gateway/test_static_files.py::test_o09_nothing_else_is_served",),
    "user of a connection without keys": (
        "gateway/test_local_users.py::test_o06_another_user_is_refused",
        "gateway/test_local_users.py::test_o06_a_client_that_has_left_is_no_user",
    ),
    "keys, rate buckets": ("gateway/test_limits.py::test_the_rate_limit_is_per_key",),
    "open event streams of a key": (
        "gateway/test_sse_connections.py::test_open_streams_of_a_key_are_limited",
    ),
    "faults of one body": (
        "contracts/test_all_systems.py::test_o15_a_million_unknown_members_cost_little_on_every_route",
    ),
    "routes in the metrics": (
        "gateway/test_health.py::test_metrics_count_requests_by_route_and_status",
    ),
    "body of a job": (
        "contracts/test_jobs_http_refusals.py::test_j19_a_too_large_body_is_refused_before_its_end",
    ),
    "payload": (
        "contracts/test_jobs_http_refusals.py::test_j19_a_bad_body_is_refused_and_nothing_is_written",
    ),
    "search for a duplicate member": (
        "contracts/test_jobs_http_refusals.py::test_j08_a_duplicate_among_many_members_is_found_in_one_pass",
    ),
    "depth of a payload": (
        "contracts/test_jobs_http_refusals.py::test_j19_a_bad_body_is_refused_and_nothing_is_written",
        "systems/jobs/test_payload.py::test_j08_short_and_long_texts_may_be_equally_deep",
    ),
    "an integer; any other number": (
        "contracts/test_jobs_http_refusals.py::test_j08_a_number_out_of_range_is_refused",
    ),
    "members around a payload": (
        "contracts/test_all_systems.py::test_o15_a_million_unknown_members_cost_little_on_every_route",
    ),
    "a payload against the schema of a worker": (
        "contracts/test_jobs_payload_check.py::test_j54_a_check_that_could_block_the_gateway_is_left_to_the_worker",
        "contracts/test_jobs_payload_check.py::test_o15_long_numbers_that_are_compared_exactly_are_left_to_the_worker",
    ),
    "the description of a fault": (
        "contracts/test_jobs_payload_check.py::test_j54_many_faults_of_many_jobs_are_answered_with_the_first_of_each",
        "json_schema/test_first_fault.py::test_o15_the_library_describes_only_small_values_and_is_asked_a_bounded_number_of_times",
        "json_schema/test_first_fault.py::test_o15_the_faults_of_hostile_payloads_need_little_memory",
    ),
    "batch": (
        "contracts/test_jobs_http_submit.py::test_j18_an_invalid_batch_is_refused_as_a_whole",
    ),
    "an error message that quotes the request": (
        "gateway/test_route.py::test_the_text_of_a_fault_is_bounded",
    ),
    "idempotency key": ("contracts/test_jobs_http_submit.py::test_j11_an_invalid_key_is_refused",),
    "page of a queue's jobs": (
        "systems/queues/test_http.py::test_o15_a_page_of_jobs_is_bounded_in_bytes",
    ),
    "page of a list": (
        "contracts/test_jobs_http_read.py::test_o15_a_page_of_jobs_is_bounded_in_bytes",
        "contracts/test_jobs_http_read.py::test_j14_a_page_scans_at_most_a_thousand_jobs",
    ),
    "error and progress of a job in a list": (
        "contracts/test_jobs_http_read.py::test_o15_a_page_of_jobs_is_bounded_in_bytes",
    ),
    "stored bytes of a tenant's jobs": (
        "contracts/test_admission.py::test_j57_one_tenant_cannot_fill_the_memory",
        "contracts/test_admission.py::test_j57_expired_jobs_leave_the_bytes_of_their_tenant",
    ),
    "jobs of a tenant's queues": (
        "systems/queues/test_tenant_limits.py::test_j57_one_tenant_cannot_fill_the_memory_through_its_queues",
        "systems/queues/test_tenant_limits.py::test_j57_one_tenant_has_a_bounded_number_of_open_jobs_in_queues",
    ),
    "records of erased images of a tenant": (
        "systems/images/test_erasure.py::test_i42_a_tenant_keeps_a_bounded_number_of_erased_records",
    ),
    "images of a tenant": (
        "systems/images/test_tenant_shares.py::test_i44_one_tenant_cannot_take_all_upload_slots",
        "systems/images/test_tenant_shares.py::test_i44_one_tenant_has_a_bounded_number_of_open_records",
    ),
    "body of an upload": (
        "systems/images/test_refusals.py::test_i20_a_stalled_or_huge_body_is_refused_and_its_claim_released",
    ),
    "lookup of an unknown task": (
        "contracts/test_jobs_fleet.py::test_o15_lookups_of_unknown_tasks_at_the_same_time_are_one",
    ),
    "documents that a schema refers to": (
        "handlers/llm/test_callers_schemas.py::test_j50_a_schema_that_refers_to_a_document_fetches_nothing",
    ),
    "parts and depth of a schema": (
        "handlers/llm/test_callers_schemas.py::test_j50_an_unusable_schema_is_refused_before_the_model_is_asked",
    ),
    "patterns": (
        "handlers/llm/test_callers_schemas.py::test_j50_a_pattern_is_matched_in_linear_time",
    ),
    "checking an answer": (
        "handlers/llm/test_callers_schemas.py::test_j50_a_costly_schema_ends_its_own_job_and_delays_no_other",
    ),
    "error texts": (
        "handlers/llm/test_callers_schemas.py::test_j50_an_answer_is_checked_and_its_values_are_not_quoted",
    ),
    "`image_url` for a model": (
        "handlers/llm/test_image_urls.py::test_o15_a_picture_inside_the_network_is_refused",
        "handlers/llm/test_image_urls.py::test_o15_a_picture_by_another_scheme_is_refused",
    ),
    "outputs of a provider": (
        "systems/predictions/test_fetch.py::test_p22_private_addresses_are_not_connected_to",
        "systems/predictions/test_fetch.py::test_p22_redirects_are_checked_and_counted",
    ),
    "events buffered for one stream": (
        "gateway/test_sse_connections.py::test_a_full_buffer_refuses_events_until_it_is_writable",
    ),
    "in the connection": (
        "gateway/test_attacks.py::test_j17_memory_of_a_watcher_that_does_not_read_is_bounded",
    ),
    "in the kernel": (
        "gateway/test_attacks.py::test_j17_memory_of_a_watcher_that_does_not_read_is_bounded",
    ),
    "one read of a job's events": (
        "systems/jobs/test_follow.py::test_j17_a_reader_with_a_full_buffer_delays_no_other_and_misses_nothing",
    ),
    "one read of a job's past for the clean view": (
        "systems/jobs/test_clean_view.py::test_a08_many_readers_of_a_job_read_its_past_once",
    ),
    "reports of a run that repeats an earlier one": (
        "worker/test_replay.py::test_a08_a_run_that_never_comes_to_its_record_holds_a_bounded_number_of_reports",
    ),
    "one read of a queue's events": (
        "systems/queues/test_follow.py::test_b12_a_slow_reader_misses_no_event",
    ),
    "events delivered in one loop turn": (
        "systems/jobs/test_follow.py::test_j17_new_subscriptions_do_not_delay_events_of_others",
    ),
    "a new subscription": (
        "systems/jobs/test_follow.py::test_j17_the_cost_of_a_new_subscription_does_not_depend_on_existing_ones",
    ),
    "an event of a queue": (
        "valkey/test_stream_follower.py::test_an_event_is_offered_to_the_watchers_of_its_subject_only",
    ),
    "jobs read in one loop turn": (
        "systems/jobs/test_follow.py::test_j17_one_connection_and_one_read_for_many_changes",
    ),
    "heartbeats": (
        "gateway/test_sse_connections.py::test_an_idle_stream_has_a_heartbeat_without_an_id",
    ),
    "commands waiting for the connection": (
        "valkey/test_connection_sharing.py::test_t02_a_full_send_queue_raises_not_sent",
    ),
    "commands in flight": (
        "valkey/test_connection_sharing.py::test_t02_commands_beyond_the_in_flight_limit_wait",
        "valkey/test_connection_sharing.py::test_t02_bytes_in_flight_are_limited",
    ),
    "removing some of many waiting commands": (
        "valkey/test_connection_faults.py::test_t02_a_command_cancelled_while_waiting_is_never_sent",
    ),
    "one reply, for `jobwire look`": (
        "systems/queues/test_cli.py::test_o15_look_withstands_a_hostile_server",
    ),
    "replies and pushes": (
        "valkey/test_connection_faults.py::test_t02_an_unexpected_reply_fails_the_socket",
    ),
    "memory use of the server": (
        "contracts/test_admission.py::test_j57_submissions_stop_before_the_server_is_full",
    ),
}
